"""Simulates a fleet for a real Prometheus with the rules of contrib/prometheus, and checks the recorded series.

One server on loopback answers for all hosts. Prometheus gets the last day as blocks, so that rules over a day have data.
The rollout has two phases; in each, the recorded series must match the hosts, and every query of the
dashboards must find something. At the end it prints series by host, evaluation times and the memory of Prometheus.
"""

import argparse
import asyncio
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import dashboards
from hosts import Fleet
from prometheus import NotRun, Prometheus, end_with_parent, find

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULES = [f"{REPOSITORY}/contrib/prometheus/{name}.rules.yml" for name in ("hugeleaf", "fleet")]
DASHBOARDS = [f"{REPOSITORY}/contrib/grafana/{name}.json" for name in ("fleet", "hugeleaf")]
GUIDE = f"{REPOSITORY}/docs/guide/fleet.md"
# Measured with 2,000 hosts; Prometheus needs them for its blocks, its log of writes and the history's text.
DISK_BYTES_BY_HOST = 3 << 20


class Endpoint:
    """Answers `GET /HOST` for each host, on a thread of its own."""

    def __init__(self, fleet: Fleet):
        self.pages = {f"/{host.name}": host for host in fleet.hosts}
        self.fleet = fleet
        self.start = time.time()
        self.series: dict[str, int] = {}
        self.port = 0
        is_listening = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.listen(is_listening)), daemon=True).start()
        if not is_listening.wait(120):
            raise RuntimeError("the endpoint of the simulated hosts does not listen on 127.0.0.1; see the error above")

    async def listen(self, is_listening: threading.Event) -> None:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        is_listening.set()
        await server.serve_forever()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                page = self.page(request.split()[1].decode())
                status = "503 Service Unavailable" if page is None else "200 OK"
                body = (page or "").encode()
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def page(self, path: str) -> str | None:
        host = self.pages.get(path)
        page = host and self.fleet.page(host, time.time() - self.start)
        if page:
            self.series[path] = page.count("\n") - 2 * page.count("# TYPE")
        return page


def configuration(folder: str, fleet: Fleet, endpoint: Endpoint, every: int) -> str:
    targets = [
        {
            "targets": [f"127.0.0.1:{endpoint.port}"],
            "labels": {"__metrics_path__": f"/{host.name}", "instance": host.name, "cluster": host.cluster},
        }
        for host in fleet.hosts
    ]
    with open(f"{folder}/targets.json", "w", encoding="utf-8") as file:
        json.dump(targets, file)
    return f"""global:
  scrape_interval: {every}s
  # A busy machine makes a scrape late, and a late host would count as silent.
  scrape_timeout: {every}s
  evaluation_interval: {every}s
rule_files: {json.dumps(RULES)}
scrape_configs:
  - job_name: hugeleaf
    file_sd_configs: [{{files: ['{folder}/targets.json']}}]
"""


def write_history(folder: str, fleet: Fleet, step: int) -> int:
    """Writes the last day as blocks of Prometheus; returns the number of samples."""
    path = f"{folder}/history.txt"
    samples = 0
    with open(path, "w", encoding="utf-8") as file:
        for line in fleet.history(time.time(), step):
            file.write(line + "\n")
            samples += not line.startswith("#")
    made = subprocess.run(
        # promtool reads the file once for each block.
        [find("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=18h", path, f"{folder}/data"],
        capture_output=True,
        text=True,
        preexec_fn=end_with_parent,
        check=False,
    )
    if made.returncode:
        raise RuntimeError(f"promtool cannot make blocks of the history: {(made.stderr or made.stdout).strip()}")
    os.unlink(path)
    return samples


def differences(answers: dict[str, dict[tuple, float]], prometheus: Prometheus) -> list[str]:
    found = []
    for name, wanted in sorted(answers.items()):
        got = prometheus.vector(name)
        for labels in sorted(wanted.keys() | got.keys()):
            one, other = wanted.get(labels), got.get(labels)
            if one is None or other is None or not math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12):
                found.append(f"{name}{dict(labels)}: is {other}, the hosts have {one}")
    return found


def settle(fleet: Fleet, prometheus: Prometheus, seconds: float, phase: str) -> None:
    """Waits until the recorded series of every host are right."""
    answers = fleet.answers()
    # Each query returns thousands of values.
    pause = 1 + len(fleet.hosts) / 200
    end = time.monotonic() + seconds
    while found := differences(answers, prometheus):
        if time.monotonic() > end:
            some = "\n".join(found[:10])
            raise RuntimeError(f"{phase}: {len(found)} answers are wrong after {seconds:.0f} s:\n{some}")
        time.sleep(pause)
    print(f"{phase}: {sum(map(len, answers.values()))} series of {len(answers)} names match the hosts", flush=True)


def run_queries(prometheus: Prometheus, seconds: float) -> None:
    """Runs every query of the dashboards and of the guide, until each finds something."""
    end = time.monotonic() + seconds
    for path, run in [(path, dashboards.query_findings) for path in DASHBOARDS] + [(GUIDE, dashboards.guide_findings)]:
        number, found = run(path, prometheus)
        # On a busy machine scrapes time out, and their series are missing for a while.
        while found and time.monotonic() < end:
            time.sleep(2)
            number, found = run(path, prometheus)
        if found:
            raise RuntimeError("\n".join(f"{os.path.basename(path)}: {one}" for one in found))
        print(f"{os.path.relpath(path, REPOSITORY)}: all {number} queries find something", flush=True)


class EvaluationTimes:
    """Wall times of the groups' evaluations that were seen. On a busy machine the shortest is nearest to their cost."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, float]] = {}
        self.rules: dict[str, float] = {}

    def see(self, prometheus: Prometheus) -> None:
        for group in prometheus.ask("rules")["groups"]:
            name = group["name"]
            if group["evaluationTime"] > 0:
                self.groups.setdefault(name, {})[group["lastEvaluation"]] = group["evaluationTime"]
            for n, rule in enumerate(group["rules"]):
                if rule["health"] == "err":
                    raise RuntimeError(f"rule {rule['name']} fails: {rule['lastError']}")
                known = f"{name}: {n} {rule['name']}"
                self.rules[known] = max(self.rules.get(known, 0.0), rule.get("evaluationTime", 0.0))

    def watch(self, prometheus: Prometheus, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.see(prometheus)
            time.sleep(2)

    def summary(self) -> dict:
        groups = {}
        for name, by_time in self.groups.items():
            times = sorted(by_time.values())
            groups[name] = {
                "evaluations": len(times),
                "shortest_seconds": times[0],
                "median_seconds": times[len(times) // 2],
                "longest_seconds": times[-1],
            }
        slowest = sorted(self.rules.items(), key=lambda one: -one[1])[:5]
        return {"groups": groups, "slowest_rules_longest_seconds": dict(slowest)}


def expressions_cpu_seconds(prometheus: Prometheus) -> float:
    """Returns the processor time of all expressions of the rules, each evaluated once: the least of three passes.

    Unlike the wall time of an evaluation, it hardly depends on other load of the machine. Scrapes go on meanwhile and are
    included; the writing of results is not.
    """
    queries = [rule["query"] for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    passes = []
    for _ in range(3):
        before, _ = prometheus.scheduling()
        for query in queries:
            # The number alone: the time to print thousands of results is not part of an evaluation.
            prometheus.ask("query", query=f"count({query})")
        passes.append(prometheus.scheduling()[0] - before)
    return min(passes)


def host_facts() -> dict:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": model.group(1) if model else "",
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg(),
        "nice": os.nice(0),
    }


def simulate(options: argparse.Namespace, folder: str) -> dict:
    fleet = Fleet(options.hosts, options.seed)
    endpoint = Endpoint(fleet)
    started = time.monotonic()
    samples = write_history(folder, fleet, options.history_step)
    print(f"{options.hosts} hosts; a day of history: {samples} samples, {time.monotonic() - started:.0f} s", flush=True)
    every = options.every
    # Prometheus spreads the scrapes of a job over one interval.
    patience = 4 * every + 300
    times = EvaluationTimes()
    facts = host_facts()
    with Prometheus(folder, configuration(folder, fleet, endpoint, every)) as prometheus:
        began = time.monotonic()
        settle(fleet, prometheus, patience, "canary")
        times.watch(prometheus, options.seconds / 2)
        fleet.widen()
        settle(fleet, prometheus, patience, "half of the hosts")
        times.watch(prometheus, options.seconds / 2)
        settle(fleet, prometheus, patience, "at the end")
        run_queries(prometheus, patience)
        times.see(prometheus)
        expressions = expressions_cpu_seconds(prometheus)
        ran, waited = prometheus.scheduling()
        by_host = sorted(endpoint.series.values())
        head = prometheus.ask("status/tsdb")["headStats"]["numSeries"]
        recorded = int(prometheus.vector('count({__name__=~".+:hugeleaf_.+"})')[()])
        return {
            "command": " ".join(["scripts/fleet.sh", *sys.argv[1:]]),
            "host": facts,
            "versions": {"prometheus": prometheus.version(), "python": platform.python_version()},
            "hosts": options.hosts,
            "every_seconds": every,
            "history_samples": samples,
            "series_by_host": {"least": by_host[0], "median": by_host[len(by_host) // 2], "most": by_host[-1]},
            "series_scraped": sum(by_host),
            "series_recorded": recorded,
            "series_in_head": head,
            "evaluation": times.summary(),
            "expressions_cpu_seconds": expressions,
            "prometheus_waited_for_processors": waited / (ran + waited),
            "prometheus_peak_memory_bytes": prometheus.peak_memory_bytes(),
            "prometheus_cpu_share": ran / (time.monotonic() - began),
        }


def show(result: dict) -> None:
    series = result["series_by_host"]
    print(f"series by host: {series['median']} (median), {series['least']} to {series['most']}; {result['series_scraped']} in all")
    print(f"recorded: {result['series_recorded']} series")
    for name, times in result["evaluation"]["groups"].items():
        print(f"group {name}: {times['evaluations']} evaluations, shortest {times['shortest_seconds']:.3f} s, median {times['median_seconds']:.3f} s, longest {times['longest_seconds']:.3f} s")
    print(f"all expressions once: {result['expressions_cpu_seconds']:.2f} s of processor time")
    print(f"Prometheus waited for a processor in {result['prometheus_waited_for_processors']:.0%} of the time in which it had work")
    print(f"Prometheus: {result['prometheus_peak_memory_bytes'] / 2**20:.0f}M at most, {result['prometheus_cpu_share']:.0%} of a processor")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fleet.sh", description="Simulate a fleet in a real Prometheus, and check rules and dashboards.")
    parser.add_argument("--hosts", type=int, default=50, help="number of hosts, at least 20 [default: 50]")
    parser.add_argument("--every", type=int, default=5, help="seconds between scrapes and between evaluations [default: 5]")
    parser.add_argument("--seconds", type=float, default=10, help="time over which evaluations are measured [default: 10]")
    parser.add_argument("--history-step", type=int, default=240, help="seconds between samples of the last day [default: 240]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the fleet [default: 1]")
    parser.add_argument("--output", help="write the result to this file (JSON)")
    chosen = parser.parse_args()
    if chosen.hosts < 20 or chosen.every < 1 or chosen.history_step < 1 or chosen.seconds < 0:
        parser.error("needs at least 20 hosts (each kind must occur), and times of at least 1 s")
    if chosen.output and not os.access(os.path.dirname(chosen.output) or ".", os.W_OK):
        parser.error(f"{chosen.output} cannot be written; name a file in an existing, writable folder")
    return chosen


def main() -> int:
    chosen = options()
    # The temporary folder is removed and Prometheus ended after a signal too.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        for program in ("prometheus", "promtool"):
            find(program)
        with tempfile.TemporaryDirectory(prefix="hugeleaf-fleet-") as folder:
            needed = chosen.hosts * DISK_BYTES_BY_HOST + (64 << 20)
            free = shutil.disk_usage(folder).free
            if free < needed:
                raise NotRun(f"needs {needed >> 20}M in {tempfile.gettempdir()}, {free >> 20}M are free; set TMPDIR to another folder")
            result = simulate(chosen, folder)
    except NotRun as reason:
        print(f"not run: fleet: {reason}")
        return 0
    except (RuntimeError, OSError) as error:
        print(f"the simulation of a fleet failed: {error}", file=sys.stderr)
        return 1
    show(result)
    if chosen.output:
        with open(chosen.output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
