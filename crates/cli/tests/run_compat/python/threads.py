"""Threads that allocate, and programs started at the same time; ends with status 3."""
import hashlib
import os
import subprocess
import sys
import threading


def large():
    """Bytes on huge pages; the test says whether there must be some."""
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(l.split()[1]) << 10 for l in lines if l.startswith("AnonHugePages:"))


kept = [{"number": i, "text": str(i) * 5} for i in range(400_000)]
if os.environ.get("COMPAT_LARGE") and large() < 32 << 20:
    sys.exit("nothing is on huge pages")

results = {}


def work(number):
    parts = []
    for i in range(60):
        parts.append(bytes([number]) * (1000 * (i + 1)))
        parts.append(bytearray(100_000 + i))
        if i % 7 == 0:
            del parts[:: 2]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    out = subprocess.run(["echo", str(number)], capture_output=True, text=True, check=True)
    results[number] = (digest.hexdigest(), out.stdout)


threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in sorted(results):
    print(number, *results[number], end="")
print(sum(len(k["text"]) for k in kept))
shell = subprocess.Popen(["sh", "-c", "cat; exit 9"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(shell.communicate(b"through a pipe\n")[0].decode(), shell.returncode)
sys.exit(3)
