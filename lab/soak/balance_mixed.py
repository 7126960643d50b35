#!/usr/bin/env python3
"""Mixed servers under one memory target, for as long as is asked: load in phases that change sides, kills and restarts,
wrong passwords, a server that refuses, one that lies, a target that changes while they run.

    lab/soak/balance_mixed.py --hugeleaf target/debug/hugeleaf --out FOLDER [--seconds 60] [--mix NAME,...] [--still]

Mixes: mariadb-redis, memcached-jvm, three-redis. Needs root, and the servers in PATH; what is not installed is left out with
a line. At most 1.5G of memory. `--still` runs the same load and events without a balancer, which tells what stalls the host
itself has. Counts: writes that were refused, evictions where the policy or the rule forbids them, the longest time of one
operation (of servers that were neither killed nor stopped at that time), and the time in which all together held more than
102 % of the target, with the longest stretch of it. Writes FOLDER/MIX.json, MIX.tsv (twice a second) and MIX.log.
"""

import argparse, json, os, random, shutil, signal, socket, subprocess, sys, tempfile, threading, time

MIB = 1 << 20
LRU_KEYS = 220_000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            time.sleep(0.1)


class Server:
    """A process with a load. `rate` operations a second are asked of it; 0 is as fast as it answers."""

    def __init__(self, mix, name, kind, rule):
        self.mix, self.name, self.kind, self.rule = mix, name, kind, rule
        self.process, self.rate = None, 1000
        self.done = self.refused = self.forbidden = 0
        self.longest, self.longest_at = 0.0, 0.0
        self.errors = {}
        self.quiet_until = 0.0
        self.evicted_before = 0
        self.folder = os.path.join(mix.folder, name)
        os.makedirs(self.folder, exist_ok=True)
        os.chmod(self.folder, 0o777)

    def spawn(self, command, **more):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **more)

    def resident(self):
        """Its share of memory, as its process holds it."""
        try:
            if self.kind == "jvm":
                with open(f"/proc/{self.process.pid}/smaps_rollup") as f:
                    line = next(l for l in f if l.startswith("Pss:"))
            else:
                with open(f"/proc/{self.process.pid}/status") as f:
                    line = next(l for l in f if l.startswith("VmRSS:"))
            return int(line.split()[1]) * 1024
        except (OSError, StopIteration, AttributeError):
            return 0

    def kill(self):
        self.quiet_until = time.time() + 1e9
        self.evicted_before = 0
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.start()
        # Connections come back and caches fill: that is no stall of the balancer's.
        self.quiet_until = time.time() + 10

    def quiet(self, seconds):
        self.quiet_until = time.time() + seconds

    def work(self):
        """Does one batch of operations again and again, until the end."""
        connection, next_at = None, time.time()
        while not self.mix.over:
            try:
                if connection is None:
                    connection = self.connect()
                began = time.time()
                count = self.batch(connection)
                took = time.time() - began
                # One batch is one round trip.
                if began > self.quiet_until and took > self.longest:
                    self.longest, self.longest_at = took, began - self.mix.began
                self.done += count
                if self.rate:
                    next_at = max(next_at + count / self.rate, time.time() - 1)
                    while not self.mix.over and time.time() < next_at:
                        time.sleep(max(0.0, min(0.02, next_at - time.time())))
            except (OSError, ValueError, IndexError, EOFError) as e:
                connection = None
                if time.time() > self.quiet_until:
                    self.errors[str(e)[:80]] = self.errors.get(str(e)[:80], 0) + 1
                time.sleep(0.1)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def count_evictions(self):
        pass


def words(*parts):
    parts = [p if isinstance(p, bytes) else str(p).encode() for p in parts]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


class Redis(Server):
    def __init__(self, mix, name, policy, limit, rule, does):
        super().__init__(mix, name, "redis", rule)
        self.policy, self.limit, self.does = policy, limit, does
        self.port, self.password = free_port(), None
        self.next_key = 0
        self.data = 0

    def start(self):
        self.spawn(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                    "--maxmemory", str(self.limit), "--maxmemory-policy", self.policy, "--daemonize", "no"])
        self.next_key = 0
        for _ in range(200):
            try:
                return self.ask("PING")
            except OSError:
                time.sleep(0.05)

    def address(self):
        return f"127.0.0.1:{self.port}"

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), 30)
        f = s.makefile("rb")
        if self.password:
            s.sendall(words("AUTH", self.password))
            f.readline()
        return s, f

    def reply(self, f):
        line = f.readline()
        if not line:
            raise EOFError("closed")
        if line[:1] == b"$" and line[1:2] != b"-":
            return f.read(int(line[1:]) + 2)
        return line

    def ask(self, *parts):
        s, f = self.connect()
        with s:
            s.sendall(words(*parts))
            return self.reply(f)

    def info(self, name):
        for line in self.ask("INFO").split(b"\r\n"):
            if line.startswith(name.encode() + b":"):
                return int(line.split(b":")[1])
        return 0

    def batch(self, connection):
        return getattr(self, self.does)(*connection)

    def count(self, replies):
        for reply in replies:
            if reply.startswith(b"-OOM"):
                self.refused += 1
            elif reply.startswith(b"-"):
                raise ValueError(reply.decode().strip())

    def read_through(self, s, f):
        """A cache: what is missing is made."""
        keys = [b"q%d" % int(LRU_KEYS * random.random() ** 1.5) for _ in range(50)]
        s.sendall(b"".join(words("GET", k) for k in keys))
        missing = [k for k, r in zip(keys, [self.reply(f) for _ in keys]) if r.startswith(b"$-1")]
        if missing:
            s.sendall(b"".join(words("SET", k, b"v" * 1000) for k in missing))
            self.count([self.reply(f) for _ in missing])
        return 50

    def store(self, s, f):
        """Data of record: grows by a little all the time, up to 100M, and is then written to."""
        keys = []
        for _ in range(50):
            self.next_key += random.random() < 0.02 * self.mix.growth
            keys.append(b"d%d" % (self.next_key if random.random() < 0.05 else random.randrange(self.next_key + 1)))
            if self.next_key >= 100_000:
                self.next_key = 0
        s.sendall(b"".join(words("SET", k, b"v" * 1000) for k in keys))
        self.count([self.reply(f) for _ in keys])
        return 50

    def sessions(self, s, f):
        """Two of three keys expire in an hour, and are to stay until then."""
        self.next_key = (self.next_key + 1) % 1000
        keys = [random.randrange(40_000) for _ in range(50)]
        s.sendall(b"".join(words("SET", b"s%d" % k, b"v" * 1000, *(["EX", 3600] if k % 3 else [])) for k in keys))
        self.count([self.reply(f) for _ in keys])
        return 50

    def fill(self, count, expire=False):
        s, f = self.connect()
        with s:
            for first in range(0, count, 500):
                batch = [words("SET", b"%s%d" % (b"s" if expire else b"q" if self.does == "read_through" else b"d", k), b"v" * 1000,
                               *(["EX", 3600] if expire and k % 3 else [])) for k in range(first, first + 500)]
                s.sendall(b"".join(batch))
                for _ in batch:
                    self.reply(f)
        if self.does == "store":
            self.next_key = count

    def count_evictions(self):
        if not self.policy.startswith("allkeys"):
            try:
                now = self.info("evicted_keys")
                self.forbidden += max(0, now - self.evicted_before)
                self.evicted_before = now
            except (OSError, EOFError, ValueError):
                pass

    def set_password(self, password):
        self.ask("CONFIG", "SET", "requirepass", password)
        self.password = password or None

    def refuse(self, refuses):
        """Whether it refuses to be resized: `CONFIG SET` fails, all else goes on."""
        self.ask("ACL", "SETUSER", "default", "-config|set" if refuses else "+config|set")


LIAR = r'''
import socket, sys, threading
open("/proc/self/comm", "w").write("redis-server")
held = bytearray(b"x") * (60 << 20)
limit = [64 << 20]
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
import os
def serve(s):
    f = s.makefile("rb")
    while True:
        line = f.readline()
        if not line: return
        parts = []
        for _ in range(int(line[1:])):
            parts.append(f.read(int(f.readline()[1:]) + 2)[:-2])
        if parts[0].upper() == b"INFO":
            served[0] += 1000
            text = ("process_id:%d\r\nmaxmemory:%d\r\nused_memory:%d\r\nmaxmemory_policy:allkeys-lru\r\nkeyspace_hits:%d\r\nkeyspace_misses:%d\r\n"
                    % (os.getpid(), limit[0], min(limit[0], 60 << 20), served[0] * 9, served[0])).encode()
            s.sendall(b"$%d\r\n%s\r\n" % (len(text), text))
        elif parts[0].upper() == b"CONFIG" and parts[1].upper() == b"SET":
            limit[0] = int(parts[3]); s.sendall(b"+OK\r\n")
        else:
            s.sendall(b"+OK\r\n")
served = [0]
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
'''


class Liar(Server):
    """Says that it is as small as it was made, holds what it held, and wants more."""

    def __init__(self, mix):
        super().__init__(mix, "liar", "redis", 'least = "16M"\n  most = "128M"')
        self.port = free_port()

    def start(self):
        self.spawn([sys.executable, "-c", LIAR, str(self.port)])
        wait_for(self.port)

    def address(self):
        return f"127.0.0.1:{self.port}"

    def work(self):
        pass


class Mariadb(Server):
    ROWS = 300_000

    def __init__(self, mix, rule):
        super().__init__(mix, "db", "mariadb", rule)
        self.socket = os.path.join(self.folder, "s.sock")
        self.often = self.ROWS
        data = os.path.join(self.folder, "data")
        shutil.chown(self.folder, "mysql")
        subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=mysql", "--skip-test-db",
                        "--auth-root-authentication-method=normal"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self):
        self.spawn(["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={self.folder}/data", f"--socket={self.socket}", "--skip-networking",
                    "--skip-log-bin", "--skip-name-resolve", "--performance-schema=OFF", "--innodb-buffer-pool-size=160M",
                    "--innodb-buffer-pool-size-max=400M", "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=O_DIRECT",
                    "--innodb-log-file-size=96M", "--key-buffer-size=1M", "--aria-pagecache-buffer-size=8M"])
        for _ in range(600):
            if self.client("SELECT 1").returncode == 0:
                return
            time.sleep(0.1)

    def client(self, query):
        return subprocess.run(["mariadb", "--no-defaults", "-uroot", "-S", self.socket, "-N", "-e", query], capture_output=True, text=True)

    def fill(self):
        made = self.client("CREATE DATABASE t; USE t; CREATE TABLE r (id INT PRIMARY KEY, text VARCHAR(700) CHARACTER SET latin1) ENGINE=InnoDB; "
                           f"INSERT INTO r SELECT seq, REPEAT('.', 700) FROM seq_1_to_{self.ROWS}")
        if made.returncode:
            raise OSError(made.stderr)

    def address(self):
        return f"mysql://root@localhost/?socket={self.socket}"

    def connect(self):
        return subprocess.Popen(["mariadb", "--no-defaults", "-uroot", "-S", self.socket, "-N", "-n", "-s", "t"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1)

    def batch(self, client):
        ids = [1 + int(self.often * random.random() ** 1.3) for _ in range(20)]
        client.stdin.write("".join(f"SELECT LENGTH(text) FROM r WHERE id={i};\n" for i in ids))
        client.stdin.flush()
        for _ in ids:
            if not client.stdout.readline():
                raise EOFError("client ended")
        return 20


class Memcached(Server):
    def __init__(self, mix, program, rule):
        super().__init__(mix, "cache", "memcached", rule)
        self.port, self.program = free_port(), program

    def start(self):
        self.spawn([self.program, "-l", "127.0.0.1", "-p", str(self.port), "-m", "160", "-t", "1", "-u", "nobody"])
        wait_for(self.port)

    def address(self):
        return f"127.0.0.1:{self.port}"

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), 30)
        return s, s.makefile("rb")

    def batch(self, connection):
        s, f = connection
        keys = [b"q%d" % int(LRU_KEYS * random.random() ** 1.5) for _ in range(50)]
        s.sendall(b"get " + b" ".join(keys) + b"\r\n")
        found = set()
        while True:
            line = f.readline()
            if not line:
                raise EOFError("closed")
            if line.startswith(b"END"):
                break
            part = line.split()
            found.add(part[1])
            f.read(int(part[3]) + 2)
        missing = [k for k in keys if k not in found]
        s.sendall(b"".join(b"set %s 0 0 1000\r\n%s\r\n" % (k, b"v" * 1000) for k in missing))
        for _ in missing:
            if b"out of memory" in f.readline():
                self.refused += 1
        return 50


JAVA = r'''
import java.util.*;
public class Mixed {
    public static void main(String[] a) throws Exception {
        java.io.BufferedReader in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        HashMap<Integer, byte[]> map = new HashMap<>();
        Random random = new Random(1);
        String line;
        while ((line = in.readLine()) != null) {
            int count = Integer.parseInt(line);
            int refused = 0;
            for (int i = 0; i < count; i++) {
                try { map.put(random.nextInt(60000), new byte[1000 + random.nextInt(1000)]); }
                catch (OutOfMemoryError e) { refused++; map.clear(); }
            }
            System.out.println(refused);
        }
    }
}
'''


class Jvm(Server):
    def __init__(self, mix, rule):
        super().__init__(mix, "jvm", "jvm", rule)
        with open(os.path.join(self.folder, "Mixed.java"), "w") as f:
            f.write(JAVA)
        subprocess.run(["javac", "Mixed.java"], cwd=self.folder, check=True)

    def start(self):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(["java", "-XX:+UseZGC", "-XX:ZUncommitDelay=5", "-Xms64m", "-Xmx400m", "-XX:SoftMaxHeapSize=200m",
                                         f"-Dmixed={self.mix.folder}", "Mixed"], cwd=self.folder, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1)
        self.quiet(5)

    def address(self):
        return f"-Dmixed={self.mix.folder}"

    def connect(self):
        return self.process

    def batch(self, process):
        process.stdin.write("200\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise EOFError("closed")
        self.refused += int(line)
        return 200


class Mix:
    def __init__(self, name, args):
        self.name, self.args = name, args
        self.folder = tempfile.mkdtemp(prefix="hugeleaf-mixed-", dir="/var/tmp")
        os.chmod(self.folder, 0o755)
        self.servers, self.events, self.over, self.guard = [], [], False, None
        self.above = self.stretch = self.longest_stretch = self.most_above = 0.0
        self.rows, self.happened = [], []
        # So that data of record grows by 40M in all, whatever the time.
        self.growth = 60.0 / args.seconds

    def rules(self):
        text = f'schema = 1\nlisten = "off"\npause_memory = "1000%"\npause_cpu = "1000%"\n[[balance]]\nname = "mixed"\ntarget = "{self.target}"\naction = "balance"\nevery = "1s"\n'
        for s in self.servers:
            text += f'  [[balance.component]]\n  name = "{s.name}"\n  kind = "{s.kind}"\n  address = "{s.address()}"\n  {s.rule}\n'
        with open(os.path.join(self.folder, "guard.toml.new"), "w") as f:
            f.write(text)
        os.rename(os.path.join(self.folder, "guard.toml.new"), os.path.join(self.folder, "guard.toml"))

    def set_target(self, bytes):
        self.target = bytes
        self.rules()
        if self.guard:
            self.guard.send_signal(signal.SIGHUP)

    def start_guard(self):
        environment = dict(os.environ)
        for name, folder in (("RUNTIME", "run"), ("STATE", "state"), ("LOGS", "logs")):
            path = os.path.join(self.folder, folder)
            os.makedirs(path, exist_ok=True)
            environment[f"{name}_DIRECTORY"] = path
        out = open(os.path.join(self.folder, "guard.out"), "ab")
        self.guard = subprocess.Popen([self.args.hugeleaf, "guard", "--config", os.path.join(self.folder, "guard.toml")],
                                      env=environment, stdout=out, stderr=out)

    def kill_guard(self):
        self.guard.kill()
        self.guard.wait()
        self.start_guard()

    def watch(self):
        """Looks twice a second."""
        last = time.time()
        while not self.over:
            time.sleep(0.5)
            now = time.time()
            held = [s.resident() for s in self.servers]
            most = self.target * 1.02
            if sum(held) > most:
                self.above += now - last
                self.stretch += now - last
                self.most_above = max(self.most_above, sum(held) / self.target)
            else:
                self.stretch = 0.0
            self.longest_stretch = max(self.longest_stretch, self.stretch)
            self.rows.append([round(now - self.began, 1), self.target // MIB] + [h // MIB for h in held] + [s.done for s in self.servers])
            last = now
            for s in self.servers:
                s.count_evictions()

    def run(self):
        for s in self.servers:
            s.start()
            if isinstance(s, Mariadb):
                s.fill()
            if isinstance(s, Redis):
                s.fill({"read_through": 140_000, "store": 60_000, "sessions": 40_000}[s.does], s.does == "sessions")
        self.began = time.time()
        # Their present memory, and a little more.
        self.target = (sum(s.resident() for s in self.servers) // MIB + self.spare) * MIB
        self.first_target = self.target
        self.rules()
        if not self.args.still:
            self.start_guard()
        threads = [threading.Thread(target=s.work, daemon=True) for s in self.servers] + [threading.Thread(target=self.watch, daemon=True)]
        for t in threads:
            t.start()
        for part, what, act in sorted(self.events, key=lambda e: e[0]):
            pause = self.began + part * self.args.seconds - time.time()
            time.sleep(max(0.0, pause))
            try:
                act()
                self.happened.append([round(time.time() - self.began, 1), what])
            except (OSError, EOFError) as e:
                self.happened.append([round(time.time() - self.began, 1), f"{what}: {e}"])
            if self.guard and self.guard.poll() is not None:
                with open(os.path.join(self.folder, "guard.out")) as f:
                    raise SystemExit(f"the guard ended with {self.guard.returncode}: {f.read()[-2000:]}")
        time.sleep(max(0.0, self.began + self.args.seconds - time.time()))
        self.over = True
        for t in threads:
            t.join(40)
        return self.result()

    def result(self):
        return {
            "mix": self.name,
            "balanced": not self.args.still,
            "seconds": self.args.seconds,
            "target_bytes": self.first_target,
            "refused_writes": sum(s.refused for s in self.servers),
            "forbidden_evictions": sum(s.forbidden for s in self.servers),
            "longest_stall_seconds": round(max(s.longest for s in self.servers), 3),
            "seconds_above_102_percent": round(self.above, 1),
            "longest_stretch_above_seconds": round(self.longest_stretch, 1),
            "most_over_target": round(self.most_above, 3),
            "servers": [
                {"name": s.name, "operations": s.done, "refused": s.refused, "forbidden_evictions": s.forbidden,
                 "longest_seconds": round(s.longest, 3), "longest_at_seconds": round(s.longest_at, 1), "errors": s.errors}
                for s in self.servers
            ],
            "events": self.happened,
        }

    def end(self):
        self.over = True
        if self.guard and self.guard.poll() is None:
            self.guard.terminate()
            self.guard.wait(20)
        for s in self.servers:
            s.stop()

    def keep(self, result):
        name = self.name + ("-still" if self.args.still else "")
        path = os.path.join(self.args.out, name)
        with open(path + ".json", "w") as f:
            json.dump(result, f, indent=1)
        with open(path + ".tsv", "w") as f:
            names = [s.name for s in self.servers]
            f.write("\t".join(["second", "target"] + [n + " MiB" for n in names] + [n + " operations" for n in names]) + "\n")
            f.writelines("\t".join(map(str, row)) + "\n" for row in self.rows)
        log = os.path.join(self.folder, "logs", "guard.jsonl")
        if os.path.exists(log):
            shutil.copy(log, path + ".log")


def rates(**all_of):
    def act():
        for server, rate in all_of["of"]:
            server.rate = rate
    return act


def swap(mix, first, second, much, little, changes=6):
    """Who is busy changes sides so often."""
    for phase in range(changes):
        busy, idle = (first, second) if phase % 2 == 0 else (second, first)
        mix.events.append((phase / changes, f"{busy.name} is busy", rates(of=[(busy, much), (idle, little)])))


def lower_and_raise(mix, at):
    mix.events += [(at, "the target falls by an eighth", lambda: mix.set_target(mix.first_target * 7 // 8)),
                   (at + 0.15, "the target is as before", lambda: mix.set_target(mix.first_target))]


def mariadb_redis(mix):
    db = Mariadb(mix, 'least = "64M"\n  most = "320M"')
    cache = Redis(mix, "lru", "allkeys-lru", 160 * MIB, 'least = "48M"\n  most = "320M"', "read_through")
    mix.servers, mix.spare = [db, cache], 40
    swap(mix, db, cache, 0, 200)
    lower_and_raise(mix, 0.4)
    mix.events += [(0.2, "Redis is killed", cache.kill), (0.23, "and started", cache.restart),
                   (0.7, "the guard is killed", mix.kill_guard if not mix.args.still else lambda: None),
                   (0.75, "Redis has another password", lambda: cache.set_password("other")),
                   (0.85, "and none again", lambda: cache.set_password(""))]


def memcached_jvm(mix):
    cache = Memcached(mix, mix.args.memcached, 'least = "48M"\n  most = "300M"')
    jvm = Jvm(mix, 'least = "96M"\n  most = "320M"')
    mix.servers, mix.spare = [cache, jvm], 220
    swap(mix, cache, jvm, 0, 300)
    lower_and_raise(mix, 0.4)
    mix.events += [(0.6, "memcached is killed", cache.kill), (0.63, "and started", cache.restart)]


def three_redis(mix):
    store = Redis(mix, "noev", "noeviction", 96 * MIB, 'least = "16M"\n  most = "300M"', "store")
    lru = Redis(mix, "lru", "allkeys-lru", 160 * MIB, 'least = "16M"\n  most = "300M"\n  evict_per_hour = "96M"', "read_through")
    vol = Redis(mix, "vol", "volatile-lru", 80 * MIB, 'least = "16M"\n  most = "300M"', "sessions")
    mix.servers, mix.spare = [store, lru, vol, Liar(mix)], 40
    store.rate = 2000
    swap(mix, lru, vol, 0, 500)
    lower_and_raise(mix, 0.5)
    mix.events += [(0.1, "lru refuses to be resized", lambda: lru.refuse(True)), (0.25, "and no more", lambda: lru.refuse(False)),
                   (0.3, "noev has another password", lambda: store.set_password("other")), (0.4, "and none again", lambda: store.set_password("")),
                   (0.75, "lru is killed", lru.kill), (0.78, "and started", lru.restart)]


MIXES = {"mariadb-redis": (mariadb_redis, ["mariadbd", "redis-server"]),
         "memcached-jvm": (memcached_jvm, ["java", "javac", "jcmd"]),
         "three-redis": (three_redis, ["redis-server"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hugeleaf", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--mix", default=",".join(MIXES))
    parser.add_argument("--memcached", default="memcached")
    parser.add_argument("--still", action="store_true")
    args = parser.parse_args()
    args.hugeleaf = os.path.abspath(args.hugeleaf)
    os.makedirs(args.out, exist_ok=True)
    failed = False
    for name in args.mix.split(","):
        make, needs = MIXES[name]
        lacks = [n for n in needs + ([args.memcached] if name == "memcached-jvm" else []) if not shutil.which(n)]
        if lacks:
            print(f"not run: {name}: {', '.join(lacks)} not installed")
            continue
        mix = Mix(name, args)
        try:
            make(mix)
            result = mix.run()
            mix.keep(result)
        finally:
            mix.end()
            shutil.rmtree(mix.folder, ignore_errors=True)
        print(json.dumps({k: v for k, v in result.items() if k not in ("servers", "events")}))
        failed |= result["refused_writes"] > 0 or result["forbidden_evictions"] > 0
    sys.exit(1 if failed and not args.still else 0)


if __name__ == "__main__":
    main()
