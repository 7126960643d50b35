"""Makes static pods of rendered objects, for a kubelet without an API server.

Reads objects in YAML, and writes NAME.json for the pod of each DaemonSet and Job, and the files of each ConfigMap. A static
pod may refer to no other object: volumes of ConfigMaps become folders of the node, and the service account is left out.
Everything that only the scheduler reads is left out too. Pods are in the node's network, so no network plugin is needed.
"""

import argparse
import json
import pathlib
import sys

import yaml

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("folder", type=pathlib.Path, help="folder for the files")
options.add_argument("node", help="folder that they will have on the node")
arguments = options.parse_args()

objects = [one for one in yaml.safe_load_all(sys.stdin) if one]
maps = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}


def host_folder(volume):
    """Writes the files of a ConfigMap volume, and returns the volume as a folder of the node."""
    source = volume["configMap"]
    data = maps[source["name"]]
    place = pathlib.PurePath("config", source["name"])
    for item in source.get("items") or [{"key": key, "path": key} for key in data]:
        file = arguments.folder / place / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data[item["key"]])
        file.chmod(source.get("defaultMode", 0o644))
    path = str(pathlib.PurePath(arguments.node, place))
    return {"name": volume["name"], "hostPath": {"path": path, "type": "Directory"}}


for one in objects:
    if one["kind"] not in ("DaemonSet", "Job"):
        continue
    template = one["spec"]["template"]
    spec = template["spec"]
    for of_cluster in ("affinity", "automountServiceAccountToken", "nodeSelector", "serviceAccountName", "tolerations"):
        spec.pop(of_cluster, None)
    spec["hostNetwork"] = True
    spec["volumes"] = [host_folder(each) if "configMap" in each else each for each in spec["volumes"]]
    part = one["metadata"]["labels"]["app.kubernetes.io/component"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": part, "namespace": one["metadata"]["namespace"]},
        "spec": spec,
    }
    (arguments.folder / f"{part}.json").write_text(json.dumps(pod, indent=1))
