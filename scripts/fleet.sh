#!/usr/bin/env bash
# Checks the rules and dashboards for many hosts (contrib/prometheus, contrib/grafana): rule tests, names of metrics
# against the program, dashboards against Grafana's schema, and a simulated fleet in a real Prometheus. The rules of one
# host are tested by cargo test (rules_for_alarms_hold).
#
# usage: scripts/fleet.sh [--hosts 2000 --every 60 --seconds 600 --history-step 60 --output FILE]
#
# With arguments only the simulation runs; `scripts/fleet.sh --help` lists them. Prints "not run" for each part whose
# tools are missing. Needs promtool and prometheus (tried with 2.42), and Python 3.11 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python-packages.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PYTHONDONTWRITEBYTECODE=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

not_run() { # PART REASON
    echo "not run: $1: $2"
}

rules() {
    if ! command -v promtool >/dev/null; then
        not_run fleet_rules "promtool is not installed (on Debian: apt install prometheus)"
        return
    fi
    (
        cd contrib/prometheus
        promtool check rules fleet.rules.yml
        promtool test rules fleet.tests.yml
    ) >"$log" 2>&1 || {
        cat "$log"
        return 1
    }
    echo "rules: as fleet.tests.yml expects"
}

names() {
    local program=$target/debug/hugeleaf
    if [ ! -x "$program" ]; then
        not_run fleet_names "$program is missing; cargo build --package hugeleaf-cli"
        return
    fi
    python3 scripts/fleet/names.py "$program"
}

dashboards() {
    local venv=$target/fleet-venv reason
    reason=$(python_packages "$venv" scripts/fleet/requirements.txt)
    if [ -n "$reason" ]; then
        not_run fleet_dashboards "$reason"
        return
    fi
    "$venv/bin/python" scripts/fleet/dashboards.py contrib/grafana/*.json
}

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    [ $# != 0 ] || rules
    not_run fleet "needs Python 3.11 or newer"
    exit 0
fi
if [ $# = 0 ]; then
    rules
    names
    dashboards
fi
python3 scripts/fleet/simulate.py "$@"
