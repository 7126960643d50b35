#!/usr/bin/env bash
# Tests the Helm chart with a real API server and etcd, which listen on loopback for the time of the test: the server
# validates each object strictly, and the chart's accounts have no rights beyond those that every account has.
#
# usage: scripts/kubernetes-api.sh
#
# Needs the programs of scripts/kubernetes-programs.sh and etcd (on Debian: the package etcd-server, which is downloaded and
# not installed). Prints "not run" if something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go-programs.sh
. scripts/python-packages.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/kubernetes-venv
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

not_run() { # REASON
    echo "not run: kubernetes_api: $1"
    exit 0
}

# Unpacks Debian's etcd beside the other programs.
need_etcd() {
    etcd=$(command -v etcd || echo "$go_programs/etcd")
    [ ! -x "$etcd" ] || return 0
    (cd "$folder" && apt-get download etcd-server && dpkg -x etcd-server_*.deb etcd) >/dev/null 2>&1 || return 0
    mkdir -p "$go_programs"
    mv "$folder/etcd/usr/bin/etcd" "$etcd"
}

[ -x "$kubernetes" ] || not_run "there is no kube-apiserver $kubernetes_version; build it within 15 minutes: scripts/kubernetes-programs.sh"
reason=$(python_packages "$venv" scripts/kubernetes-requirements.txt)
[ -z "$reason" ] || not_run "$reason"
need_helm >"$folder/reason"
[ ! -s "$folder/reason" ] || not_run "$(cat "$folder/reason")"
need_etcd
[ -x "$etcd" ] || not_run "there is no etcd, and apt cannot fetch it (on Debian: apt install etcd-server)"

PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" scripts/kubernetes_api.py --helm "$helm" --kubernetes "$kubernetes" --etcd "$etcd"
