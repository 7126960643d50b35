#!/usr/bin/env bash
# Tests the Helm chart without a cluster: helm lint, the rendered objects for all combinations of parts against the strict
# schemas of several Kubernetes versions, rights, refused values with their messages, and the alerts. Then, as root and with
# runc, runs the rendered pods' containers on this host.
#
# usage: scripts/kubernetes-test.sh [HUGELEAF]
#
# HUGELEAF: the program, to check the rendered plans and rules, and for the containers. Default: the debug build.
# Builds Helm once with Go, which takes about five minutes, and keeps it in the user's cache folder. Prints "not run" for
# each part whose tools are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python-packages.sh
. scripts/go-programs.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
hugeleaf=${1:-$target/debug/hugeleaf}
venv=$target/kubernetes-venv
log=$(mktemp)
trap 'rm -f "$log"' EXIT

not_run() { # REASON
    echo "not run: kubernetes: $1"
    exit 0
}

reason=$(python_packages "$venv" scripts/kubernetes-requirements.txt)
[ -z "$reason" ] || not_run "$reason"

# Not in a subshell: it sets `helm`.
need_helm >"$log"
[ ! -s "$log" ] || not_run "$(cat "$log")"

[ -x "$hugeleaf" ] || hugeleaf=
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" scripts/kubernetes_test.py --helm "$helm" ${hugeleaf:+--hugeleaf "$hugeleaf"}

if command -v promtool >/dev/null; then
    (cd contrib/kubernetes/tests && promtool test rules pods.tests.yml) >"$log" 2>&1 || {
        cat "$log"
        exit 1
    }
    echo "ok: alerts and recording rules"
else
    echo "not run: the part of kubernetes about alerts: promtool is not installed (on Debian: apt install prometheus)"
fi
