"""Synthetic hosts: the metrics that a guard exports, and the answers that the fleet's rules must give.

The answers are computed from the hosts in Python, never by a query, so that an error of the rules shows.
"""

import math
import random
import time
from dataclasses import dataclass, field

M, G = 1 << 20, 1 << 30

# By kind of host: share, its server, memory, the ratio that its metric shows on huge pages (below 1 for a latency),
# noise of that ratio between hosts, and the share of hosts with a pool, by page size.
KINDS = {
    "mariadb": (25, "mariadb.service", (8 * G, 200 * G), 1.10, 0.02, {}),
    "postgresql": (20, "postgresql@15-main.service", (4 * G, 64 * G), 0.88, 0.02, {"2M": 0.7}),
    "redis": (15, "redis-server.service", (2 * G, 48 * G), 1.2, 0.03, {}),
    "java": (15, "app.service", (4 * G, 32 * G), 1.0, 0.003, {"1G": 0.3, "2M": 0.3}),
    "memcached": (5, "memcached.service", (4 * G, 64 * G), 0.95, 0.01, {}),
    "clickhouse": (5, "clickhouse-server.service", (8 * G, 64 * G), None, 0, {"2M": 0.2}),
    "kubernetes": (15, None, (512 * M, 8 * G), None, 0, {"2M": 0.5}),
}
PAGE_BYTES = {"2M": 2 * M, "1G": G}
RESTART = ["restart-would-fail", "pool-too-small", "cgroup-limit", "memlock-small", "group-missing", "mount-missing"]
OTHER_FINDINGS = [("service-short", "problem"), ("pool-changed", "problem"), ("knob-reset", "warning"), ("sysctl-drift", "warning")]
# The recorded names that are checked; the others are steps towards them.
ANSWERS = """instance:hugeleaf_silent:info mode:hugeleaf_hosts:count pages:hugeleaf_eligible:bytes
instance_unit:hugeleaf_on_base_pages:ratio instance_unit:hugeleaf_on_base_pages:bytes instance:hugeleaf_on_base_pages:bytes
instance_unit:hugeleaf_misaligned:bytes
unit:hugeleaf_on_base_pages:count unit:hugeleaf_on_base_pages:bytes unit:hugeleaf_on_base_pages:page_table_bytes
unit_verdict:hugeleaf_tested_hosts:count unit:hugeleaf_gain:ratio unit:hugeleaf_worth:servers
instance_unit:hugeleaf_worth:servers instance_page_size:hugeleaf_pool:bytes
instance_page_size:hugeleaf_pool_unused_bytes:min1d instance_id:hugeleaf_findings:max
instance_id:hugeleaf_restart_would_fail:max""".split()
EVENTS = """compact_daemon_free_scanned compact_daemon_migrate_scanned compact_daemon_wake compact_fail
compact_free_scanned compact_isolated compact_migrate_scanned compact_stall compact_success thp_collapse_alloc
thp_collapse_alloc_failed thp_deferred_split_page thp_fault_alloc thp_fault_fallback thp_fault_fallback_charge
thp_file_alloc thp_file_fallback thp_file_fallback_charge thp_file_mapped thp_migration_fail thp_migration_split
thp_migration_success thp_scan_exceed_none_pte thp_scan_exceed_share_pte thp_scan_exceed_swap_pte thp_split_page
thp_split_page_failed thp_split_pmd thp_split_pud thp_swpout thp_swpout_fallback thp_underused_split_page
thp_zero_page_alloc thp_zero_page_alloc_failed""".split()


@dataclass
class Unit:
    name: str
    memory: int
    huge: int = 0
    # Verdict, low, estimate, high; of the value on huge pages over the value on base pages.
    proof: tuple[str, float, float, float] | None = None
    # True if the test measured a latency.
    less_is_better: bool = False
    # The part of the memory on base pages that is misaligned.
    misaligned: int = 0

    @property
    def base(self) -> int:
        return self.memory - self.huge

    @property
    def page_tables(self) -> int:
        return self.base // 512 + self.huge // (512 * 512)


@dataclass
class Pool:
    used: int
    reserved: int
    unused: int
    # Minimum of unused bytes in the last day; None if the host is younger than a day.
    least: int | None


@dataclass
class Host:
    name: str
    cluster: str
    kind: str
    units: list[Unit]
    pools: dict[str, Pool] = field(default_factory=dict)
    findings: dict[tuple[str, str], int] = field(default_factory=dict)
    mode: str = "watching"
    # Reason why it sends no current data; empty for a host that does.
    silent: str = ""

    @property
    def labels(self) -> str:
        return f'cluster="{self.cluster}",instance="{self.name}"'


def judged(ratio: float, log_error: float, better_below: bool) -> tuple[str, float, float, float]:
    """Returns a test's verdict as the guard judges it: the same within 2 %, or beyond 1 on one side."""
    low, high = ratio * math.exp(-log_error), ratio * math.exp(log_error)
    if 1 / 1.02 <= low and high <= 1.02:
        verdict = "same"
    elif low > 1 or high < 1:
        verdict = "faster" if (low > 1) != better_below else "slower"
    else:
        verdict = "unclear"
    return verdict, low, ratio, high


class Fleet:
    def __init__(self, count: int, seed: int):
        self.random = random.Random(seed)
        kinds = [kind for kind, (share, *_) in KINDS.items() for _ in range(share)]
        self.hosts = [self.host(n, kinds[n * 37 % len(kinds)]) for n in range(count)]
        # Hosts that were removed today: no target has their names.
        self.removed = [Host(f"removed-{n}", "east", "mariadb", [], silent="no data") for n in range(max(1, count // 500))]
        # A few of each, whatever the size of the fleet. A host with a finding or a silent guard is no canary.
        order = self.random.sample(self.hosts, count)
        few = max(1, count // 100)
        for host in order[:few]:
            host.silent = "no data"
        for host in order[few : 2 * few]:
            host.silent = "guard stopped"
        for host in order[2 * few : 3 * few]:
            host.mode, host.units = "verify only", []
        for host in order[3 * few : 3 * few + max(1, few // 2)]:
            host.mode, host.units, host.silent = "verify only", [], "verify stopped"
        self.healthy = order[4 * few :]
        for host in self.healthy[:few]:
            self.act(host)

    def host(self, number: int, kind: str) -> Host:
        _, server, (least, most), _, _, pools = KINDS[kind]
        # Every server has a size of its own, so that a sum over wrong hosts cannot be right.
        memory = lambda: self.random.randrange(least, most, 4096)
        if kind == "kubernetes":
            units = [Unit(self.pod(), memory()) for _ in range(self.random.randint(12, 30))]
        else:
            units = [Unit(server, memory())]
        for name in self.random.sample(["sshd", "rsyslog", "node-exporter", "chrony", "backup", "agent", "cron"], 4):
            units.append(Unit(f"{name}.service", self.random.randrange(20 * M, 240 * M, 4096)))
        units.append(Unit("other", self.random.randrange(300 * M, 900 * M, 4096)))
        if number % 3 == 0:
            # On huge pages without the guard.
            units[0].huge = units[0].memory * 97 // 100 // 4096 * 4096
        elif number % 7 == 0:
            units[0].huge = units[0].memory // 2 // 4096 * 4096
        elif number % 5 == 0:
            # Shared memory that was mapped while shmem_enabled was never.
            units[0].misaligned = units[0].memory // 3 // 4096 * 4096
        host = Host(f"{kind}-{number:04}", ("east", "west")[number % 2], kind, units)
        for size, share in pools.items():
            if self.random.random() < share:
                host.pools[size] = self.pool(PAGE_BYTES[size])
        if self.random.random() < 0.04:
            name = self.random.choice(RESTART)
            host.findings[name, "problem" if name != "group-missing" else "warning"] = self.random.randint(1, 3)
        if self.random.random() < 0.06:
            host.findings[self.random.choice(OTHER_FINDINGS)] = 1
        return host

    def pod(self) -> str:
        text = f"{self.random.getrandbits(128):032x}"
        return f"pod {text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def pool(self, page: int) -> Pool:
        total = self.random.randint(100, 4000) if page < G else self.random.randint(4, 40)
        unused = self.random.choice([0, total // 100, total // 3, total])
        reserved = (total - unused) // 5
        least = self.random.choice([unused, unused, unused // 2, 0, None])
        used = total - unused - reserved
        return Pool(used * page, reserved * page, unused * page, None if least is None else least * page)

    def act(self, host: Host) -> None:
        """The guard promotes the host's server, tests it, and demotes it if it is slower."""
        host.mode = "acting"
        _, server, _, ratio, noise, _ = KINDS[host.kind]
        for unit in host.units:
            if unit.name != server:
                continue
            verdict = "untested"
            if ratio is not None:
                error = self.random.uniform(0.008, 0.06)
                measured = ratio * math.exp(self.random.gauss(0, noise))
                unit.less_is_better = host.kind == "postgresql"
                unit.proof = judged(measured, error, unit.less_is_better)
                verdict = unit.proof[0]
            unit.huge = 0 if verdict == "slower" else unit.memory * 96 // 100 // 4096 * 4096
            unit.misaligned = 0

    def widen(self) -> None:
        """The second phase of a rollout: every second host acts, and pods are replaced."""
        for host in self.healthy[: len(self.healthy) // 2]:
            if host.mode == "watching":
                self.act(host)
        for host in self.healthy:
            if host.kind == "kubernetes":
                host.units[0] = Unit(self.pod(), host.units[0].memory)

    # The metrics.

    def page(self, host: Host, since_start: float) -> str | None:
        """Returns the host's answer to a scrape; None if it does not answer."""
        if host.silent == "no data":
            return None
        families = verify_metrics(host) if host.mode == "verify only" else guard_metrics(host, since_start)
        lines: list[str] = []
        for name, kind, samples in families:
            suffix = "_total" if kind == "counter" else ""
            lines.append(f"# HELP {name}{suffix} .\n# TYPE {name}{suffix} {kind}")
            lines.extend(f"{name}{suffix}{{{labels}}} {value!r}" if labels else f"{name}{suffix} {value!r}" for labels, value in samples)
        return "\n".join(lines) + "\n"

    def history(self, now: float, step: int):
        """Yields the samples of the last day, which rules over a day and over 15 minutes read, as OpenMetrics.

        Families are not interleaved, and each has its samples in order of time.
        """
        day, until = int(now) - 25 * 3600, int(now) - 60
        guards = [host for host in self.hosts if host.silent != "no data" and host.mode != "verify only"]
        yield "# TYPE instance:hugeleaf_host:info gauge"
        for host in self.hosts + self.removed:
            mode = host.mode
            labels = f'{{{host.labels},mode="{mode}"}}' if mode == "verify only" else f'{{{host.labels},kernel="6.12.0",mode="{mode}",version="0.1.0"}}'
            # A host that is gone was there an hour ago.
            end = until - 3600 if host.silent == "no data" else until
            for at in range(day, end, step):
                yield f"instance:hugeleaf_host:info{labels} 1 {at}"
        yield "# TYPE instance_page_size:hugeleaf_pool_unused:bytes gauge"
        for host in guards:
            for size, pool in host.pools.items():
                labels = f'{{{host.labels},page_size="{size}"}}'
                start = day if pool.least is not None else int(now) - 4 * 3600
                for at in range(start, until, step):
                    # The least of the day is in its middle.
                    is_middle = 10 * 3600 < at - day < 11 * 3600
                    yield f"instance_page_size:hugeleaf_pool_unused:bytes{labels} {pool.least if is_middle and pool.least is not None else pool.unused} {at}"
        yield "# TYPE instance_unit:hugeleaf_covered:ratio gauge"
        for host in guards:
            for unit in host.units:
                if unit.memory > 1e9 and unit.huge > 0.9 * unit.memory:
                    labels = f'{{{host.labels},job="hugeleaf",unit="{unit.name}"}}'
                    for at in range(day, until, step):
                        yield f"instance_unit:hugeleaf_covered:ratio{labels} {unit.huge / unit.memory} {at}"
        for name, more in (("hugeleaf_tests", ',verdict="slower"'), ("hugeleaf_grown_bytes", "")):
            yield f"# TYPE {name} counter"
            for host in guards:
                for at in range(day, until, step):
                    yield f'{name}_total{{{host.labels},job="hugeleaf"{more}}} 0 {at}'
        yield "# TYPE hugeleaf_scans counter"
        for host in guards:
            for at in range(int(now) - 1800, until, 60):
                yield f'hugeleaf_scans_total{{{host.labels},job="hugeleaf"}} {scans(host, at - now)} {at}'
        yield "# EOF"

    # The answers.

    def answers(self) -> dict[str, dict[tuple, float]]:
        """Returns, for each recorded name, its value by sorted labels."""
        seen = [host for host in self.hosts if host.silent != "no data"]
        guards = [host for host in seen if host.mode != "verify only"]
        of = lambda host, **more: key(cluster=host.cluster, instance=host.name, **more)
        out: dict[str, dict[tuple, float]] = {name: {} for name in ANSWERS}

        def add(name: str, labels: tuple, value: float) -> None:
            out[name][labels] = out[name].get(labels, 0) + value

        gains: dict[str, list[dict[str, float]]] = {}
        for host in guards:
            for unit in host.units:
                if unit.proof:
                    gain = gain_of(unit)
                    gains.setdefault(unit.name, []).append(gain)
                    add("unit_verdict:hugeleaf_tested_hosts:count", key(unit=unit.name, verdict=unit.proof[0]), 1)
        ratios: dict[tuple[str, str], float] = {}
        for unit, all_gains in gains.items():
            for bound, part in (("low", 0.1), ("estimate", 0.5), ("high", 0.9)):
                ratios[unit, bound] = quantile(part, [gain[bound] for gain in all_gains])
                add("unit:hugeleaf_gain:ratio", key(unit=unit, bound=bound), ratios[unit, bound])

        for host in seen:
            add("mode:hugeleaf_hosts:count", key(cluster=host.cluster, mode=host.mode), 1)
            for (name, severity), number in host.findings.items():
                add("instance_id:hugeleaf_findings:max", of(host, id=name, severity=severity), number)
                if name in RESTART:
                    add("instance_id:hugeleaf_restart_would_fail:max", of(host, id=name, severity=severity), number)
        for host in guards:
            for unit in host.units:
                add("pages:hugeleaf_eligible:bytes", key(cluster=host.cluster, pages="base"), unit.base)
                add("pages:hugeleaf_eligible:bytes", key(cluster=host.cluster, pages="huge"), unit.huge)
                is_decided = unit.proof is not None and unit.proof[0] in ("slower", "same")
                if unit.name == "other" or unit.base < 256 * M or unit.base <= 0.1 * unit.memory or is_decided:
                    continue
                share = unit.base / unit.memory
                add("instance_unit:hugeleaf_on_base_pages:ratio", of(host, unit=unit.name), share)
                add("instance_unit:hugeleaf_on_base_pages:bytes", of(host, unit=unit.name), unit.base)
                add("instance:hugeleaf_on_base_pages:bytes", of(host), unit.base)
                add("instance_unit:hugeleaf_misaligned:bytes", of(host, unit=unit.name), unit.misaligned)
                by_unit = key(cluster=host.cluster, unit="pods" if unit.name.startswith("pod ") else unit.name)
                add("unit:hugeleaf_on_base_pages:count", by_unit, 1)
                add("unit:hugeleaf_on_base_pages:bytes", by_unit, unit.base)
                add("unit:hugeleaf_on_base_pages:page_table_bytes", by_unit, unit.page_tables)
                if (unit.name, "estimate") in ratios:
                    add("instance_unit:hugeleaf_worth:servers", of(host, unit=unit.name), share * (ratios[unit.name, "estimate"] - 1))
                    for bound in ("low", "estimate", "high"):
                        add("unit:hugeleaf_worth:servers", key(cluster=host.cluster, unit=unit.name, bound=bound), share * (ratios[unit.name, bound] - 1))
            for size, pool in host.pools.items():
                total = pool.used + pool.reserved + pool.unused
                add("instance_page_size:hugeleaf_pool:bytes", of(host, page_size=size), total)
                least = None if pool.least is None else min(pool.least, pool.unused)
                if least is not None and least > 0.02 * total:
                    add("instance_page_size:hugeleaf_pool_unused_bytes:min1d", of(host, page_size=size), least)
        for host in self.hosts + self.removed:
            if host.silent:
                add("instance:hugeleaf_silent:info", of(host, reason=host.silent), 1)
        return out


def key(**labels: str) -> tuple:
    return tuple(sorted(labels.items()))


def gain_of(unit: Unit) -> dict[str, float]:
    """Turns the ratio of a latency to the other side, so that above 1 is always a gain."""
    _, low, estimate, high = unit.proof
    if unit.less_is_better:
        return dict(low=1 / high, estimate=1 / estimate, high=1 / low)
    return dict(low=low, estimate=estimate, high=high)


def quantile(part: float, values: list[float]) -> float:
    values = sorted(values)
    rank = part * (len(values) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(values) - 1)
    return values[below] * (1 - (rank - below)) + values[above] * (rank - below)


def scans(host: Host, since_start: float) -> int:
    return 100_000 if host.silent == "guard stopped" else 100_000 + int((since_start + 3600) / 5)


def label(**labels: object) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def guard_metrics(host: Host, since_start: float):
    """Yields the families of a guard, in the order of the program, those with deprecated names included."""
    pools = []
    for size in PAGE_BYTES:
        pool = host.pools.get(size, Pool(0, 0, 0, None))
        for node in ("all", "0", "1"):
            parts = (pool.used, pool.reserved, pool.unused)
            if node != "all":
                parts = tuple(part // 2 for part in parts)
            pools.append((size, node, parts))
    yield "hugeleaf_info", "gauge", [(label(version="0.1.0", kernel="6.12.0", mode=host.mode), 1)]
    for name, states in (("hugeleaf_pool_memory_bytes", ("used", "reserved", "unused")), ("hugeleaf_pool_bytes", ("used", "reserved", "free"))):
        yield name, "gauge", [
            (label(page_size=size, node=node, state=state), part) for size, node, parts in pools for state, part in zip(states, parts)
        ]
    yield "hugeleaf_pool_surplus_bytes", "gauge", [(label(page_size=size, node=node), 0) for size, node, _ in pools]
    yield "hugeleaf_pool_findings", "gauge", [
        (label(severity=severity), sum(number for (_, of), number in host.findings.items() if of == severity)) for severity in ("problem", "warning")
    ]
    yield "hugeleaf_findings", "gauge", [(label(id=name, severity=severity), number) for (name, severity), number in host.findings.items()]
    yield "hugeleaf_eligible_bytes", "gauge", [
        (label(unit=unit.name, pages=pages), value) for unit in host.units for pages, value in (("base", unit.base), ("huge", unit.huge))
    ]
    yield "hugeleaf_page_tables_bytes", "gauge", [(label(unit=unit.name), unit.page_tables) for unit in host.units]
    managed = [(label(unit=unit.name), unit.huge if host.mode == "acting" else 0) for unit in host.units]
    yield "hugeleaf_managed_bytes", "gauge", managed
    yield "hugeleaf_misaligned_bytes", "gauge", [(label(unit=unit.name), unit.misaligned) for unit in host.units]
    pods = [unit.name.removeprefix("pod ") for unit in host.units if unit.name.startswith("pod ")]
    yield "hugeleaf_pod_info", "gauge", [(label(unit=f"pod {uid}", pod_uid=uid, container_id=uid.replace("-", "") * 2), 1) for uid in pods]
    states = ("promoting", "reverting", "testing", "queued", "candidate", "managed", "already huge", "skipped")
    yield "hugeleaf_process_trees", "gauge", [(label(state=state), len(host.units) if state == "skipped" else 0) for state in states]
    promoted = sum(value for _, value in managed)
    for name, value in (("promotions", bool(promoted)), ("promoted_bytes", promoted), ("promotions_short", 0), ("demotions", 0), ("grown_bytes", 0), ("stall_seconds", promoted / 1e11)):
        yield f"hugeleaf_{name}", "counter", [("", float(value))]
    yield "hugeleaf_longest_stall_seconds", "gauge", [("", 0.004 if promoted else 0)]
    proofs = [(unit.name, unit.proof) for unit in host.units if unit.proof]
    yield "hugeleaf_tests", "counter", [
        (label(verdict=verdict), sum(proof[0] == verdict for _, proof in proofs)) for verdict in ("faster", "slower", "same", "unclear", "dropped")
    ]
    yield "hugeleaf_proof_ratio", "gauge", [
        (label(unit=name, verdict=proof[0], bound=bound), value) for name, proof in proofs for bound, value in zip(("low", "estimate", "high"), proof[1:])
    ]
    yield "hugeleaf_proof_gain_ratio", "gauge", [
        (label(unit=unit.name, verdict=unit.proof[0], bound=bound), value) for unit in host.units if unit.proof for bound, value in gain_of(unit).items()
    ]
    yield "hugeleaf_proof_timestamp_seconds", "gauge", [(label(unit=name), 1.79e9) for name, _ in proofs]
    yield "hugeleaf_kernel_events", "counter", [(label(event=event), 1e6 + int(n * 7 * since_start)) for n, event in enumerate(EVENTS)]
    yield "hugeleaf_pressure_ratio", "gauge", [(label(resource="memory"), 0.0), (label(resource="cpu"), 0.02)]
    yield "hugeleaf_host_page_tables_bytes", "gauge", [("", sum(unit.page_tables for unit in host.units))]
    yield "hugeleaf_problems", "gauge", [("", 0)]
    yield "hugeleaf_scans", "counter", [("", scans(host, since_start))]
    for name, value in (("scan_cpu_seconds", 0.011), ("scan_wait_seconds", 5.0), ("pool_check_cpu_seconds", 0.09)):
        yield f"hugeleaf_{name}", "gauge", [("", value)]
    yield "process_cpu_seconds", "counter", [("", 100 + since_start * 0.004)]
    yield "process_resident_memory_bytes", "gauge", [("", 22 * M)]
    yield "process_start_time_seconds", "gauge", [("", 1.79e9)]
    yield "hugeleaf_memory_bytes", "gauge", [
        (label(unit=unit.name, pages=pages), value) for unit in host.units for pages, value in (("small", unit.base), ("huge", unit.huge))
    ]
    yield "hugeleaf_moved_bytes", "gauge", managed
    yield "hugeleaf_programs", "gauge", [(label(state=state), 0) for state in ("moving", "reverting", "testing", "next", "would", "kept", "large", "no")]
    yield "hugeleaf_looks", "counter", [("", scans(host, since_start))]
    for name, value in (("look_cpu_seconds", 0.011), ("look_wait_seconds", 5.0)):
        yield f"hugeleaf_{name}", "gauge", [("", value)]


def verify_metrics(host: Host):
    """Yields the families that `hugeleaf verify --prometheus` writes."""
    age = 90_000 if host.silent == "verify stopped" else 300
    yield "hugeleaf_verify_good", "gauge", [("", int(not host.findings))]
    yield "hugeleaf_verify_time_seconds", "gauge", [("", int(time.time()) - age)]
    yield "hugeleaf_findings", "gauge", [(label(id=name, severity=severity), number) for (name, severity), number in host.findings.items()]
    for name in ("running", "asked_bytes", "got_bytes", "short_pages", "start_time_seconds"):
        yield f"hugeleaf_service_{name}", "gauge", [(label(service="postgresql@15-main"), 1)]
    yield "hugeleaf_pool_pages", "gauge", [
        (label(page_bytes=PAGE_BYTES[size], state=state), 0) for size in PAGE_BYTES for state in ("total", "free", "reserved", "surplus", "unused")
    ]
