#!/usr/bin/env bash
# Kernel against kernel: the same workloads in guests of `make vm` on two of its hosts, and then `hugeleaf compare` of what
# was counted. A guest is emulated and slow, so no time in it says anything of a machine; page faults, page tables, memory,
# coverage and what an arm needs over another do.
#
# usage: scripts/kernels.sh HOST-A HOST-B [WORKLOAD…]      from the hosts of `make vm-list`
#
# Results go to target/kernels/HOST, or below $OUT. PAIRS sets the runs of each arm (6; an interval needs 4).
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -lt 2 ]; then
    echo "hugeleaf: kernels.sh: name two hosts" >&2
    echo "  next: make vm-list; make vm-kernels A=x86-6.1 B=x86-7.3-two-nodes" >&2
    exit 2
fi
a=$1 b=$2
shift 2
workloads=${*:-sort python sqlite}
out=${OUT:-target/kernels}

# As much as an emulated processor does in a minute.
small() { # WORKLOAD
    case $1 in
    sort) echo "--set lines=1200000" ;;
    python) echo "--set rows=250000" ;;
    sqlite) echo "--set rows=500000 --set reads=30000" ;;
    esac
}

lines='mount -t tmpfs -o size=2500M,mode=1777 scratch /var/tmp; cd /var/tmp; '
for workload in $workloads; do
    lines+="hugeleaf bench file $workload --pages 4K,thp:2M,run --pairs ${PAIRS:-6} $(small "$workload") --output /out/$workload.json || echo \"not run: $workload\"; "
done
lines+='rm -rf /var/tmp/*'

for host in "$a" "$b"; do
    echo "== $host"
    mkdir -p "$out/$host"
    scripts/lab.sh run --quiet --package hugeleaf-vm --bin hugeleaf-vm -- run "$host" \
        --userland lab --memory 8G --limit "${LIMIT:-3600}" --files "$out/$host" -- "$lines"
done
cargo run --locked --quiet --package hugeleaf-cli --bin hugeleaf -- compare "$out/$a" "$out/$b" --counts
