#!/usr/bin/env bash
# Builds the kubelet, the API server and kubectl as one program, and keeps it in the user's cache folder. The tests with a
# real kubelet and a real API server need it. Takes 15 minutes of processor time and a gigabyte of Go modules.
#
# usage: scripts/kubernetes-programs.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go-programs.sh

if [ ! -x "$kubernetes" ]; then
    reason=$(go_program "$kubernetes" build_kubernetes)
    if [ -n "$reason" ]; then
        echo "$reason" >&2
        exit 3
    fi
fi
echo "$kubernetes"
