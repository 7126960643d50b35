#!/usr/bin/env bash
# Makes the files of the host `kubelet`: the kubelet, hugeleaf for its image, and the chart as static pods, before and after
# an upgrade of this image.
#
# usage: lab/vm/kubelet/files.sh FOLDER HUGELEAF
#
# Ends with status 3 and a reason if something is missing.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. scripts/go-programs.sh
. scripts/python-packages.sh

folder=$1
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/kubernetes-venv
missing() { # REASON
    echo "$1" >&2
    exit 3
}

[ -x "$kubernetes" ] || missing "there is no kubelet $kubernetes_version; build it within 15 minutes: scripts/kubernetes-programs.sh"
reason=$(python_packages "$venv" scripts/kubernetes-requirements.txt)
[ -z "$reason" ] || missing "$reason"
need_helm >"$folder/reason"
[ ! -s "$folder/reason" ] || missing "$(cat "$folder/reason")"
rm "$folder/reason"

cp "$kubernetes" "$folder/kubelet"
# The guest copies and hashes slowly.
strip -o "$folder/hugeleaf" "$2"
for image in 1 2; do
    mkdir "$folder/pods-$image"
    "$helm" template hugeleaf contrib/kubernetes/hugeleaf --namespace hugeleaf --kube-version "$kubernetes_version" \
        --values lab/vm/kubelet/values.yaml --set-string image.tag="$image" |
        "$venv/bin/python" lab/vm/kubelet/static_pods.py "$folder/pods-$image" /etc/hugeleaf-pods
done
