"""Compares the metrics of the simulated hosts with those of the program, and the names in rules and dashboards with its source.

The guard's rules in docs/guide/fleet.md are given to `hugeleaf guard --check`.

usage: names.py PROGRAM
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hosts import Fleet, guard_metrics

REPOSITORY = Path(__file__).resolve().parents[2]
# Only a guard that runs exports these, some only after a test or with a finding; `hugeleaf metrics` alone does not.
OF_A_GUARD = {
    "hugeleaf_findings",
    "hugeleaf_proof_gain_ratio",
    "hugeleaf_proof_ratio",
    "hugeleaf_proof_timestamp_seconds",
    "process_cpu_seconds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
}
# PSI, node 1 and pods are not on every host, and no other label depends on them.
OF_SOME_HOSTS = {"hugeleaf_pressure_ratio", "hugeleaf_pod_info"}


def of_program(program: str) -> dict[str, tuple[str, set[str]]]:
    """Returns type and label names of each family."""
    text = subprocess.run([program, "metrics"], capture_output=True, text=True, check=True, timeout=60).stdout
    families: dict[str, tuple[str, set[str]]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            families[name.removesuffix("_total")] = (kind, set())
        elif not line.startswith("#"):
            name = re.match(r"[\w:]+", line).group().removesuffix("_total")
            families[name][1].update(re.findall(r'[{,](\w+)="', line))
    return families


def of_hosts() -> dict[str, tuple[str, set[str]]]:
    fleet = Fleet(100, 1)
    fleet.widen()
    families: dict[str, tuple[str, set[str]]] = {}
    for host in fleet.hosts:
        for name, kind, samples in guard_metrics(host, 0) if host.mode != "verify only" else ():
            labels = families.setdefault(name, (kind, set()))[1]
            for text, _ in samples:
                labels.update(re.findall(r'(?:^|,)(\w+)="', text))
    return families


def main() -> int:
    program, hosts = of_program(sys.argv[1]), of_hosts()
    found = []
    for name, (kind, labels) in program.items():
        if name not in hosts:
            found.append(f"{name}: the program exports it, the simulated hosts do not; add it to scripts/fleet/hosts.py")
        elif kind != hosts[name][0]:
            found.append(f"{name}: the program exports a {kind}, the simulated hosts a {hosts[name][0]}")
        # A family without samples has no labels here.
        elif labels and labels != hosts[name][1]:
            found.append(f"{name}: the program's labels are {sorted(labels)}, those of the simulated hosts {sorted(hosts[name][1])}")
    unknown = hosts.keys() - program.keys() - OF_A_GUARD - OF_SOME_HOSTS
    found.extend(f"{name}: the simulated hosts export it, the program does not" for name in sorted(unknown))

    source = "".join(path.read_text(encoding="utf-8") for path in REPOSITORY.glob("crates/report/src/**/*.rs"))
    for folder, pattern in (("prometheus", "*.rules.yml"), ("grafana", "*.json")):
        for path in sorted((REPOSITORY / "contrib" / folder).glob(pattern)):
            # Names of recorded series have colons.
            for name in sorted(set(re.findall(r"(?<![\w:])(?:hugeleaf|process)_\w+(?![\w:])", expressions(path)))):
                if f'"{name.removesuffix("_total")}"' not in source:
                    found.append(f"{path.relative_to(REPOSITORY)}: {name} is no metric of the program")
    found.extend(guide_findings(sys.argv[1]))
    for finding in found:
        print(finding)
    if not found:
        print(f"{len(hosts)} families of the simulated hosts, as the program exports them")
    return int(bool(found))


def guide_findings(program: str) -> list[str]:
    guide = (REPOSITORY / "docs/guide/fleet.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    found = [] if blocks else ["docs/guide/fleet.md: no rules of a guard were found"]
    for block in blocks:
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(block)
            file.flush()
            check = subprocess.run([program, "guard", "--check", "--config", file.name], capture_output=True, text=True, check=False, timeout=60)
        if check.returncode:
            found.append(f"docs/guide/fleet.md: {(check.stdout + check.stderr).strip()}")
    return found


def expressions(path: Path) -> str:
    """Returns the text of a file that holds queries, without comments, names of rules and identifiers of dashboards."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        dashboard = json.loads(text)
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        return "\n".join(queries + [str(variable["query"]) for variable in dashboard["templating"]["list"]])
    return "\n".join(line for line in text.splitlines() if not re.match(r"\s*(#|- name:)", line))


if __name__ == "__main__":
    sys.exit(main())
