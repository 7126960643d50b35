"""Tests of the Helm chart without a cluster; scripts/kubernetes-test.sh calls them."""

import argparse
import contextlib
import fcntl
import functools
import http.server
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import kubernetes_node
import kubernetes_validate
import yaml

CHART = pathlib.Path("contrib/kubernetes/hugeleaf")
CI = sorted((CHART / "ci").glob("*.yaml"))
REFUSED = pathlib.Path("contrib/kubernetes/tests/refused.yaml")
# The oldest version of Chart.yaml, and the newest four.
KUBERNETES = ["1.30", "1.34", "1.35", "1.36", "1.37"]

CAPABILITIES = {
    "exporter": {"DAC_READ_SEARCH", "SYS_PTRACE"},
    "guard": {"DAC_READ_SEARCH", "SYS_NICE", "SYS_PTRACE"},
    "pool-setter": set(),
}
# Folders of the host that a part may write to; GUARD_OPTIONS has those of the guard's options.
WRITABLE = {
    "exporter": set(),
    "guard": {"/run/hugeleaf", "/var/lib/hugeleaf", "/var/log/hugeleaf"},
    "pool-setter": {
        "/etc/sysctl.d",
        "/etc/tmpfiles.d",
        "/sys/devices/system/node",
        "/sys/kernel/mm",
        "/var/lib/hugeleaf",
    },
}
READABLE = {"/etc/machine-id", "/run/systemd/system", "/sys/fs/cgroup", "/var/lib/hugeleaf"}
GUARD_OPTIONS = {
    "giveBack": {"/sys/devices/system/node", "/sys/kernel/mm/hugepages"},
    "demoteShared": {"/sys/kernel/debug"},
}

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--helm", required=True)
options.add_argument("--hugeleaf")
arguments = options.parse_args()

TESTS = []


class NotRun(Exception):
    """A test needs something that this host lacks."""


def test(function):
    TESTS.append(function)
    return function


def helm(command, *words, ok=True):
    # A helm built from its module assumes an old Kubernetes.
    version = ["--kube-version", f"{KUBERNETES[-1]}.0"] if command == "template" and "--kube-version" not in words else []
    run = subprocess.run([arguments.helm, command, *map(str, words), *version], capture_output=True, text=True)
    if ok:
        assert run.returncode == 0, f"helm {command} {words}: {run.stderr}"
    return run


def rendered(*words, release="hugeleaf"):
    text = helm("template", release, CHART, "--namespace", "hugeleaf", *words).stdout
    return [one for one in yaml.safe_load_all(text) if one]


def values(content):
    """Returns the arguments that pass values to helm, and keeps their file until the end."""
    file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
    FILES.append(file.name)
    with file:
        yaml.safe_dump(content, file)
    return ["--values", file.name]


FILES = []


@functools.cache
def matrix():
    """Returns name, values and objects of all combinations of parts, and of the files in ci/."""
    found = [(file.name, yaml.safe_load(file.read_text()) or {}, rendered("--values", file)) for file in CI]
    plans = yaml.safe_load((CHART / "ci/pool-setter.yaml").read_text())["poolSetter"]["plans"]
    flags = [False, True]
    for exporter, guard, everywhere, setter, metrics in itertools.product(flags, repeat=5):
        content = {
            "exporter": {"enabled": exporter},
            "guard": {"enabled": guard, "nodeSelector": {} if everywhere else {"hugeleaf/guard": "enabled"}},
            "poolSetter": {"enabled": setter, "plans": plans},
            "metrics": {"serviceMonitor": {"enabled": metrics}, "rules": {"enabled": metrics}},
        }
        found.append((f"{content}", content, rendered(*values(content))))
    return found


def of_kind(objects, *kinds):
    return [one for one in objects if one["kind"] in kinds]


def part_of(one):
    return one["metadata"]["labels"]["app.kubernetes.io/component"]


def pods(objects):
    """Yields each workload with its pod."""
    for one in of_kind(objects, "DaemonSet", "Job"):
        yield one, one["spec"]["template"]


def containers(pod):
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


def selects(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def runs_on(pod, node, labels):
    """Applies the node selector and the required node affinity, as the scheduler does."""
    if not selects(pod["spec"].get("nodeSelector", {}), labels):
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True

    def holds(rule, of):
        found = of.get(rule["key"])
        return {"In": found in rule["values"], "NotIn": found not in rule["values"]}[rule["operator"]]

    return any(
        all(holds(rule, labels) for rule in term.get("matchExpressions", []))
        and all(holds(rule, {"metadata.name": node}) for rule in term.get("matchFields", []))
        for term in required["nodeSelectorTerms"]
    )


@test
def helm_lints_every_values_file():
    for file in CI:
        said = helm("lint", "--strict", CHART, "--values", file).stdout
        assert "0 chart(s) failed" in said, said


@test
def every_object_fits_the_strict_schemas():
    # Schemas are megabytes in size, and most objects occur in many combinations.
    kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)
    seen = set()
    for name, _, objects in matrix():
        for one in objects:
            text = json.dumps(one)
            if one["apiVersion"] == "monitoring.coreos.com/v1" or text in seen:
                continue
            seen.add(text)
            fits_the_schemas(one, name)


def fits_the_schemas(one, name):
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(map(str, error.path))
            raise AssertionError(f"{name}: {one['kind']} {version}: {path}: {error.message}") from None


@test
def a_plan_for_kubernetes_needs_no_edit():
    """Pods fit the schemas, and another node takes the chart's plan as it is."""
    program = built()
    host = "fixtures/x86-4k-two-nodes"

    def hugeleaf(*words, root=host, statuses=(0,)):
        run = subprocess.run([program, *map(str, words), "--root", str(root)], capture_output=True, text=True)
        assert run.returncode in statuses, f"{words}: {run.stdout}{run.stderr}"
        return run.stdout

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        other = folder / "other"
        shutil.copytree(host, other)
        for name in ("etc/machine-id", "etc/hostname", "proc/sys/kernel/hostname"):
            file = other / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("f" * 32 + "\n" if name == "etc/machine-id" else "other\n")
        for sizes, expected, more in (
            ("2M", {"hugepages-2Mi": "1026Mi"}, []),
            ("1G", {"hugepages-1Gi": "2048Mi"}, []),
            ("2M", {"hugepages-2Mi": "1026Mi"}, ["--mount", "/mnt/huge"]),
        ):
            words = ["plan", "--bytes", "1025M", "--name", "Big DBs: a", "--sizes", sizes, "--kubernetes", *more]
            pods = [one for one in yaml.safe_load_all(hugeleaf(*words)) if one]
            assert json.loads(hugeleaf(*words, "--json"))["kubernetes"]["pods"] == pods, pods
            (pod,) = pods
            fits_the_schemas(pod, f"plan --kubernetes {sizes} {more}")
            (container,) = pod["spec"]["containers"]
            assert container["resources"] == {"requests": expected, "limits": expected}, container
            volumes = [volume["emptyDir"] for volume in pod["spec"].get("volumes", [])]
            assert volumes == ([{"medium": "HugePages-2Mi"}] if more else []), volumes

            values = folder / "values.yaml"
            values.write_text(hugeleaf(*words, "--output", "-"))
            given = yaml.safe_load(values.read_text())["poolSetter"]
            assert given["enabled"] and list(given["plans"]) == ["big-dbs-a"], given
            nodes = ["--values", values, "--set", "poolSetter.plans.big-dbs-a.nodes={n1,n2}"]
            objects = rendered(*nodes)
            assert len(of_kind(objects, "Job")) == 2
            for one in objects:
                fits_the_schemas(one, "plan --kubernetes --output")
            (text,) = [one["data"]["plan.toml"] for one in of_kind(objects, "ConfigMap") if "plan.toml" in one["data"]]
            assert text == given["plans"]["big-dbs-a"]["plan"], text
            plan = folder / "plan.toml"
            plan.write_text(text)
            plan.chmod(0o400)
            for root in (host, other):
                said = hugeleaf("apply", "--dry-run", plan, root=root)
                assert "systemctl restart kubelet" in said, said
            plan.unlink()


@test
def each_part_can_be_off():
    for name, content, objects in matrix():
        found = {part_of(one) for one, _ in pods(objects)}
        guard = content.get("guard", {})
        has_guard = guard.get("enabled", False)
        everywhere = has_guard and not guard.get("nodeSelector")
        expected = set()
        if content.get("exporter", {}).get("enabled", True) and not everywhere:
            expected.add("exporter")
        if has_guard:
            expected.add("guard")
        if content.get("poolSetter", {}).get("enabled", False):
            expected.add("pool-setter")
        assert found == expected, f"{name}: {found}"
        accounts = {part_of(one) for one in of_kind(objects, "ServiceAccount")}
        assert accounts == expected, f"{name}: accounts of {accounts}"
        is_scraped = bool(expected & {"exporter", "guard"})
        assert bool(of_kind(objects, "Service")) == is_scraped, name
        # No object of a part that is off, and none that grants rights in the cluster.
        kinds = {one["kind"] for one in objects}
        known = {
            "ConfigMap", "DaemonSet", "Job", "Namespace", "NetworkPolicy", "PrometheusRule", "Service", "ServiceAccount",
            "ServiceMonitor",
        }
        assert kinds <= known, f"{name}: {kinds - known}"
        if not expected:
            assert not objects, f"{name}: {kinds}"


@test
def pods_have_the_rights_of_their_part_and_no_more():
    for name, content, objects in matrix():
        guard = content.get("guard", {})
        for one, pod in pods(objects):
            part, spec = part_of(one), pod["spec"]
            where = f"{name}: {part}"
            capabilities, writable = set(CAPABILITIES[part]), set(WRITABLE[part])
            if part == "guard":
                on = [paths for option, paths in GUARD_OPTIONS.items() if guard.get(option)]
                writable = writable.union(*on)
                if guard.get("hardwareCounters"):
                    capabilities.add("PERFMON")
            assert spec["automountServiceAccountToken"] is False, where
            assert spec["hostPID"] is True, where
            assert not {"hostNetwork", "hostIPC"} & set(spec), where
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            used = set()
            for container in containers(pod):
                rights = container["securityContext"]
                assert rights["privileged"] is False, where
                assert rights["allowPrivilegeEscalation"] is False, where
                assert rights["readOnlyRootFilesystem"] is True, where
                assert rights["capabilities"]["drop"] == ["ALL"], where
                assert set(rights["capabilities"].get("add", [])) == capabilities, f"{where}: {rights}"
                assert container["command"] == ["/usr/bin/hugeleaf"], where
                assert {"cpu", "memory"} <= set(container["resources"]["requests"]), where
                assert set(container["resources"]["limits"]) == {"memory"}, where
                for mount in container["volumeMounts"]:
                    used.add(mount["name"])
                    path = volumes[mount["name"]].get("hostPath", {}).get("path")
                    if path is None:
                        continue
                    assert path == mount["mountPath"], where
                    allowed = READABLE if mount.get("readOnly") else writable
                    assert path in allowed, f"{where} mounts {mount}"
            assert used == set(volumes), f"{where}: volumes without a mount: {set(volumes) - used}"


@test
def a_node_has_the_exporter_or_the_guard():
    content = {
        "guard": {"enabled": True, "nodeSelector": {"hugeleaf/guard": "enabled", "zone": "a"}},
    }
    of = {part_of(one): pod for one, pod in pods(rendered(*values(content)))}
    for guard, zone in itertools.product([None, "enabled", "disabled"], [None, "a", "b"]):
        labels = {"kubernetes.io/os": "linux", "hugeleaf/guard": guard, "zone": zone}
        labels = {key: value for key, value in labels.items() if value is not None}
        found = [part for part, pod in of.items() if runs_on(pod, "n", labels)]
        expected = "guard" if (guard, zone) == ("enabled", "a") else "exporter"
        assert found == [expected], f"{labels}: {found}"
    windows = {"kubernetes.io/os": "windows", "hugeleaf/guard": "enabled", "zone": "a"}
    assert not [part for part, pod in of.items() if runs_on(pod, "n", windows)]


@test
def metrics_are_reached_by_their_service_and_policy():
    for name, _, objects in matrix():
        serving = [pod for one, pod in pods(objects) if part_of(one) in ("exporter", "guard")]
        others = [pod for one, pod in pods(objects) if part_of(one) == "pool-setter"]
        policies = of_kind(objects, "NetworkPolicy")
        for pod in serving:
            (container,) = pod["spec"]["containers"]
            (port,) = container["ports"]
            assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}, name
            assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}, name
            (service,) = of_kind(objects, "Service")
            assert selects(service["spec"]["selector"], pod["metadata"]["labels"]), name
            assert service["spec"]["ports"][0]["targetPort"] == port["name"], name
            for monitor in of_kind(objects, "ServiceMonitor"):
                assert selects(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]), name
                (endpoint,) = monitor["spec"]["endpoints"]
                assert endpoint["port"] == service["spec"]["ports"][0]["name"], name
            config = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "config"]
            name_of_map = config[0]["configMap"]["name"]
            (map,) = [one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == name_of_map]
            assert map["data"]["chart.toml"].splitlines()[-1].endswith(f":{port['containerPort']}\""), map["data"]
        for pod in others:
            for service in of_kind(objects, "Service"):
                assert not selects(service["spec"]["selector"], pod["metadata"]["labels"]), name
        if policies:
            for pod in serving + others:
                fit = [p for p in policies if selects(p["spec"]["podSelector"]["matchLabels"], pod["metadata"]["labels"])]
                types = {type for policy in fit for type in policy["spec"]["policyTypes"]}
                assert types == {"Ingress", "Egress"}, f"{name}: {types}"
                ingress = [rule for policy in fit for rule in policy["spec"].get("ingress", [])]
                # A rule without peers would admit everybody.
                assert all(rule["from"] for rule in ingress), name
                assert pod in serving or not ingress, name


@test
def jobs_are_pinned_and_renamed_when_they_change():
    file = ["--values", str(CHART / "ci/all.yaml")]

    def jobs(*words):
        return {one["metadata"]["name"]: one for one in of_kind(rendered(*words), "Job")}

    first = jobs(*file)
    assert len(first) == 3, sorted(first)
    assert all(len(name) <= 63 for name in first)
    for one in first.values():
        node = one["metadata"]["annotations"]["hugeleaf/node"]
        plan = one["metadata"]["labels"]["hugeleaf/plan"]
        pod = one["spec"]["template"]
        labels = {"kubernetes.io/os": "linux", "hugeleaf/plan": plan}
        assert runs_on(pod, node, labels), one
        assert not runs_on(pod, "other", labels), one
        assert not runs_on(pod, node, {"kubernetes.io/os": "linux"}), "the label is the node's consent"
        assert pod["spec"]["restartPolicy"] == "Never"
        (setter,) = pod["spec"]["initContainers"]
        # A retry cannot fill a pool that compaction could not fill.
        (on_exit,) = [rule["onExitCodes"] for rule in one["spec"]["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
        assert on_exit["values"] == [1, 2], on_exit
        assert on_exit["containerName"] == setter["name"], on_exit
        # The plan is mounted as one file, because its folder is writable by others.
        (mount,) = [mount for mount in setter["volumeMounts"] if mount["name"] == "plan"]
        assert mount["subPath"] == "plan.toml" and mount["readOnly"]
    # A Job cannot be changed, so the same name always has the same pod.
    others = {
        "a plan": ["--set", "poolSetter.plans.databases.plan=schema = 1"],
        "the image": ["--set", "image.digest=", "--set", "image.tag=v2"],
        "the resources": ["--set", "poolSetter.resources.limits.memory=512Mi"],
        "nothing": [],
    }
    for changed, words in others.items():
        second = jobs(*file, *words)
        for name in set(first) & set(second):
            assert first[name]["spec"]["template"] == second[name]["spec"]["template"], changed
        kept = {"a plan": 1, "nothing": 3}.get(changed, 0)
        assert len(set(first) & set(second)) == kept, changed
    more = ["--set", "poolSetter.plans.caches.nodes={cache-1.example.org,cache-2.example.org}"]
    assert set(first) < set(jobs(*file, *more)), "a further node leaves the Jobs of the others alone"


@test
def values_out_of_range_are_refused():
    for case in yaml.safe_load(REFUSED.read_text()):
        given, expected = case["values"], case["says"]
        run = helm("template", "hugeleaf", CHART, *values(given), ok=False)
        assert run.returncode != 0, f"accepted: {given}"
        assert expected in run.stderr, f"{given}: expected: {expected}\nfound: {run.stderr}"


@test
def an_old_kubernetes_is_refused():
    run = helm("template", "hugeleaf", CHART, "--kube-version", "1.29.9", ok=False)
    assert run.returncode != 0 and "chart requires kubeVersion: >=1.30.0-0" in run.stderr, run.stderr
    helm("template", "hugeleaf", CHART, "--kube-version", f"{KUBERNETES[0]}.0")


@test
def texts_arrive_as_they_were_written():
    text = "   # indented\n\tschema = 1\n\n[default] # {{ not a template }}: \"quoted\" 'text'\naction = \"watch\"\n"
    plans = {"db": {"plan": text, "nodeSelector": {"p": "db"}, "nodes": ["n1"]}}
    objects = rendered(*values({"guard": {"enabled": True, "rules": text}, "poolSetter": {"enabled": True, "plans": plans}}))
    found = [data for one in of_kind(objects, "ConfigMap") for key, data in one["data"].items() if key != "chart.toml"]
    assert found == [text, text], found


@test
def names_fit_their_limits():
    long = "a-release-with-a-very-long-name-indeed-53-characters"
    for one in rendered("--values", CHART / "ci/all.yaml", release=long):
        limit = 253 if one["kind"] == "ConfigMap" else 63
        assert len(one["metadata"]["name"]) <= limit, one["metadata"]["name"]
        for key, value in one["metadata"].get("labels", {}).items():
            assert len(str(value)) <= 63, f"{key}: {value}"
    # Two releases in one namespace share no object.
    names = [
        {(one["kind"], one["metadata"]["name"]) for one in rendered("--values", CHART / "ci/pool-setter.yaml", release=release)}
        for release in ("one", "two")
    ]
    assert not names[0] & names[1]


@contextlib.contextmanager
def api_server(nodes):
    """Simulates the API server for helm's lookup of nodes, and yields a kubeconfig."""
    answers = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {
            "kind": "APIResourceList",
            "groupVersion": "v1",
            "resources": [{"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "list"]}],
        },
        "/api/v1/nodes": {
            "kind": "NodeList",
            "apiVersion": "v1",
            "items": [
                {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}} for name, labels in nodes.items()
            ],
        },
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path.split("?")[0])
            body = json.dumps(found or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "test", "user": {}}],
    }
    try:
        yield values(config)[1]
    finally:
        server.shutdown()
        server.server_close()


@test
def nodes_are_found_by_their_labels():
    given = yaml.safe_load((CHART / "ci/pool-setter.yaml").read_text())
    del given["poolSetter"]["plans"]["db"]["nodes"]
    nodes = {
        "n2": {"hugeleaf/plan": "db", "kubernetes.io/os": "linux"},
        "n1": {"hugeleaf/plan": "db"},
        "n3": {"hugeleaf/plan": "other"},
        "n4": None,
    }

    def found(nodes):
        with api_server(nodes) as config:
            words = ["template", "hugeleaf", CHART, *values(given), "--dry-run=server", "--kubeconfig", config]
            return helm(*words, ok=False)

    run = found(nodes)
    assert run.returncode == 0, run.stderr
    jobs = of_kind(list(filter(None, yaml.safe_load_all(run.stdout))), "Job")
    assert [one["metadata"]["annotations"]["hugeleaf/node"] for one in jobs] == ["n1", "n2"], jobs
    for none in ({}, {"n3": nodes["n3"]}):
        run = found(none)
        assert run.returncode != 0 and "no node has the labels hugeleaf/plan=db" in run.stderr, run.stderr
        assert "next: kubectl label node NODE hugeleaf/plan=db;" in run.stderr, run.stderr


NOTES = """apiVersion: v1
kind: ConfigMap
metadata:
  name: notes
data:
  text: |2
{{ include (print $.Template.BasePath "/NOTES.txt") . | indent 4 }}
"""


@test
def notes_say_which_part_runs():
    with tempfile.TemporaryDirectory() as folder:
        # helm template leaves notes out, so an object includes them.
        copied = pathlib.Path(folder, "hugeleaf")
        shutil.copytree(CHART, copied)
        (copied / "templates/notes.yaml").write_text(NOTES)
        for file, said in {
            "default": ["exporter     on\n", "guard        off", "pool setter  off"],
            "guard-everywhere": ["exporter     no pods: the guard runs on all nodes", "guard        on, on all nodes"],
            "all": ["exporter     on, on nodes without the guard", "hugeleaf/guard=enabled,zone=a", "databases on nodes with"],
            "nothing": ["exporter     off"],
        }.items():
            text = helm("template", "hugeleaf", copied, "--namespace", "n", "--values", CHART / f"ci/{file}.yaml").stdout
            (notes,) = [one["data"]["text"] for one in yaml.safe_load_all(text) if one and one["metadata"]["name"] == "notes"]
            for line in said:
                assert line in notes, f"{file}: {line!r} is not in:\n{notes}"
            assert "map[" not in notes and "%!" not in notes, notes


def built():
    """Returns the path of the program."""
    if not arguments.hugeleaf:
        raise NotRun("hugeleaf is not built: cargo build --package hugeleaf-cli")
    return arguments.hugeleaf


@test
def the_program_reads_the_rules_and_plans():
    """Rules and plans are checked by the program that will read them."""
    program = built()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for file in CI:
            for one in of_kind(rendered("--values", file), "ConfigMap"):
                data = one["data"]
                if "plan.toml" in data:
                    (folder / "plan.toml").write_text(data["plan.toml"])
                    (folder / "plan.toml").chmod(0o400)
                    words = ["apply", "--dry-run", "--root", "fixtures/x86-7.3-two-nodes", folder / "plan.toml"]
                    run = subprocess.run([program, *words], capture_output=True, text=True)
                    # Status 3: the program has read the plan, and this host is too small for it.
                    said = run.stdout + run.stderr
                    assert run.returncode in (0, 3), said
                    assert "line " not in said, said
                    continue
                (folder / "guard.toml").write_text(data["guard.toml"])
                (folder / "guard.d").mkdir(exist_ok=True)
                (folder / "guard.d/chart.toml").write_text(data["chart.toml"])
                words = ["guard", "--check", "--config", folder / "guard.toml"]
                run = subprocess.run([program, *words], capture_output=True, text=True)
                assert run.returncode == 0, run.stderr


@test
def the_report_says_when_the_kubelet_must_be_restarted():
    """Reads a captured node as a pod with a private cgroup namespace sees it."""
    program = built()
    pod, of, _ = workload(rendered("--values", CHART / "ci/pool-setter.yaml"), "pool-setter")
    with tempfile.TemporaryDirectory() as folder:
        captured = pathlib.Path(folder, "node")
        shutil.copytree("fixtures/advice/kubelet-before-pool", captured)
        (captured / "proc/self/cgroup").write_text("0::/\n")
        (captured / "proc/self/mountinfo").write_text("30 20 0:26 /../../../.. /sys/fs/cgroup ro,relatime - cgroup2 cgroup2 rw\n")
        words = [*of["report"]["args"], "--root", captured]
        said = subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
        assert "run: systemctl restart kubelet" in said, said
        # Nothing in the Job could do it: it does not have the node's service manager.
        assert "/run/dbus" not in json.dumps(pod)


VICTIM = """
import mmap, os, sys, time
open("/proc/self/comm", "w").write("hugeleaf-test")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
memory = mmap.mmap(-1, 66 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, len(memory), 4096):
    memory[at] = 1
memory.madvise(mmap.MADV_HUGEPAGE)
print("ready", flush=True)
time.sleep(3600)
"""

RULES = """
schema = 1
every = "1s"
pause_cpu = "100%"
pause_memory = "100%"

[[rule]]
name = "hugeleaf-test"
action = "promote"
min_bytes = "16M"
scans = 1
"""


@contextlib.contextmanager
def node():
    """Yields this host as a node."""
    program, runc = built(), shutil.which("runc")
    if os.geteuid() != 0 or not runc:
        raise NotRun("needs root and runc (on Debian: apt install runc)")
    one = kubernetes_node.Node(program, runc)
    try:
        yield one
    finally:
        one.remove()


@contextlib.contextmanager
def victim():
    """Starts a process of another user, with memory on base pages, and yields a function that returns its bytes on huge pages."""
    process = subprocess.Popen([sys.executable, "-S", "-c", VICTIM], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"

        def huge():
            text = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            return int(text.split("AnonHugePages:")[1].split()[0]) << 10

        yield huge
    finally:
        process.kill()
        process.wait()


def until(condition, found):
    """Waits up to 300 s for a condition, because the host may be busy."""
    ends = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < ends, f"waited for 300 s: {found()}"
        time.sleep(0.2)


def without_port(maps):
    """Sets the rules of these tests, and turns the metrics off, because the containers have no network."""
    for one in maps:
        one["data"] = {"guard.toml": RULES, "chart.toml": "schema = 1\nlisten = \"off\"\n"}


def workload(objects, part):
    """Returns the pod of a part, its containers by name, and the ConfigMaps."""
    pod = next(pod for one, pod in pods(objects) if part_of(one) == part)
    return pod["spec"], {one["name"]: one for one in containers(pod)}, of_kind(objects, "ConfigMap")


@test
def containers_have_the_seccomp_profile_of_a_runtime():
    if not kubernetes_node.SECCOMP.exists():
        raise NotRun(f"{kubernetes_node.SECCOMP} is not installed (on Debian: apt install golang-github-containers-common)")
    allowed = kubernetes_node.seccomp(CAPABILITIES["exporter"])["syscalls"]
    assert any("process_madvise" in rule["names"] and rule["action"] == "SCMP_ACT_ALLOW" for rule in allowed)


@test
def a_guard_pod_promotes_and_an_exporter_pod_cannot():
    with node() as host:
        content = {"guard": {"enabled": True, "rules": RULES, "nodeSelector": {"hugeleaf/guard": "enabled"}}}
        objects = rendered(*values(content))
        with victim() as huge:
            for part in ("exporter", "guard"):
                pod, of, maps = workload(objects, part)
                without_port(maps)
                run = host.run(pod, of[part], maps, ["guard", "--once"])
                said = run.stdout + run.stderr
                assert "hugeleaf-test" in said, f"{part} does not see the process: {said}"
                if part == "exporter":
                    # khugepaged may have collapsed some of it meanwhile.
                    assert run.returncode == 1 and "Operation not permitted" in said, f"{part} promoted: {said}"
                else:
                    # 66M hold 32 whole blocks of 2M at any alignment.
                    assert run.returncode == 0 and huge() >= 64 << 20, f"{huge()} bytes: {said}"


@test
def an_exporter_pod_reads_and_writes_nothing():
    """Runs the exporter's container with the chart's arguments, and rules that would promote."""
    with node() as host:
        pod, of, maps = workload(rendered(), "exporter")
        without_port(maps)
        with victim() as huge, host.running(pod, of["exporter"], maps) as (name, process, output):

            def status():
                assert process.poll() is None, output.read_text()
                run = host.exec(name, "guard", "status", "--json")
                return json.loads(run.stdout) if run.returncode == 0 else {"programs": []}

            def base():
                return sum(tree["base_bytes"] for tree in status()["programs"] if tree["name"] == "hugeleaf-test")

            until(lambda: base() >= 64 << 20, status)
            said = status()
            assert said["read_only"] and not said["acts"] and not said["problems"], said
            assert huge() == 0 and [one["what"] for one in said["log"]] == ["started"], said["log"]
            assert not list(host.path("/var/lib/hugeleaf").iterdir())


@test
def a_guard_pod_continues_after_an_upgrade():
    with node() as host:
        content = {"guard": {"enabled": True, "rules": RULES}}
        pod, of, maps = workload(rendered(*values(content)), "guard")
        without_port(maps)
        with victim() as huge:

            def state(guard):
                """Returns the guard's entry of the process, or none while the guard starts."""
                name, process, output = guard
                assert process.poll() is None, output.read_text()
                run = host.exec(name, "guard", "status", "--json")
                if run.returncode != 0:
                    return None
                status = json.loads(run.stdout)
                assert not status["problems"], status["problems"]
                trees = status["programs"]
                return next((tree for tree in trees if tree["name"] == "hugeleaf-test"), None)

            for is_first in (True, False):
                with host.running(pod, of["guard"], maps) as guard:
                    until(lambda: (state(guard) or {}).get("state") == "managed", lambda: state(guard))
                    assert huge() >= 64 << 20, huge()
                    if is_first:
                        second = host.run(pod, of["guard"], maps)
                        assert second.returncode == 3, second
                        assert "\n  next: " in second.stderr, second
                    host.stop(guard[0])
                    until(lambda: guard[1].poll() is not None, guard[2].read_text)
                    assert guard[1].returncode == 0, guard[2].read_text()
            # The second guard knew the promotion of the first, and made none.
            log = host.path("/var/log/hugeleaf/guard.jsonl").read_text()
            events = [json.loads(line)["what"] for line in log.splitlines()]
            assert events.count("promoted") == 1 and events.count("started") == 2, log


PLAN = """
schema = 1

[host]
memory_bytes = {memory}
base_page = "{base}"
default_page = "2M"
pages = ["2M"]
nodes = [0]

[base]
used_bytes = 0
to_pools_bytes = 0
margin_bytes = 0

[[service]]
name = "databases"
kind = "other"

[[service.demand]]
what = "memory"
source = "--bytes"
from = "pool"
mappings = [{{ count = 1, bytes = {bytes} }}]
pages = [{{ page = "2M", pages = {pages} }}]

[[pool]]
page = "2M"
node = 0
pages = {pages}
for = ["databases"]
"""


def memory():
    return int(pathlib.Path("/proc/meminfo").read_text().split()[1]) << 10


def plan(pages, **host):
    text = PLAN.format(memory=memory(), base=f"{os.sysconf('SC_PAGE_SIZE') >> 10}K", bytes=pages << 21, pages=pages)
    lines = "".join(f'{key} = "{value}"\n' for key, value in host.items())
    return text.replace("[host]\n", f"[host]\n{lines}")


@contextlib.contextmanager
def host_alone():
    """Holds the lock of tests that change pools; crates/testkit/src/host_lock.rs says why there are two."""

    def locked(name):
        file = os.open(f"/run/lock/{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    pathlib.Path("/run/lock").mkdir(exist_ok=True)
    turnstile = locked("hugeleaf.turnstile")
    lock = locked("hugeleaf.lock")
    os.close(turnstile)
    try:
        yield
    finally:
        os.close(lock)


@test
def a_pool_setter_pod_sets_the_pool_or_says_why_not():
    pool = pathlib.Path("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages")
    if not pool.exists():
        raise NotRun("this kernel has no pool of 2M pages on node 0")
    with node() as host, host_alone():
        before = int(pool.read_text())
        if before != 0:
            raise NotRun(f"this host has a pool of {before} pages")

        def job(text, name="apply", edit=lambda container: None):
            one = {"nodeSelector": {"p": "db"}, "nodes": ["n1"], "plan": text, "undo": name == "undo"}
            content = {"poolSetter": {"enabled": True, "plans": {"db": one}}}
            pod, of, maps = workload(rendered(*values(content)), "pool-setter")
            edit(of[name])
            run = host.run(pod, of[name], maps)
            return run.returncode, run.stdout + run.stderr

        def refused(text, **more):
            status, said = job(text, **more)
            assert status in (2, 3), said
            assert int(pool.read_text()) == before, said
            # The kubelet shows the end of the log as the container's message.
            assert "\n  next: " in said[-2048:], said
            return said

        try:
            said = refused(plan(4, id="0" * 32, name="other"))
            assert "the plan is for the host other" in said, said
            said = refused(plan(memory() * 98 // 100 >> 21))
            assert "must stay outside them" in said, said

            def read_only(name):
                def edit(container):
                    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == name]
                    mount["readOnly"] = True

                return edit

            said = refused(plan(4), edit=read_only("sysctl"))
            assert "Read-only file system" in said and "/etc/sysctl.d" in said, said
            said = refused(plan(4), edit=read_only("state"))
            assert "Read-only file system" in said and "/var/lib/hugeleaf" in said, said
            state = host.path("/var/lib/hugeleaf")
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=755", "full", state], check=True)
            try:
                (state / "other").write_bytes(bytes(4096))
                said = refused(plan(4))
            finally:
                subprocess.run(["umount", state], check=True)
            assert "No space left on device" in said and "make room" in said, said

            def as_folder(container):
                for mount in container["volumeMounts"]:
                    if mount.pop("subPath", None):
                        mount["mountPath"] = "/etc/hugeleaf"

            said = refused(plan(4), edit=as_folder)
            assert "could be changed by others" in said, said

            with open(state / "lock", "w") as lock:
                os.chmod(state / "lock", 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                refused(plan(4))

            status, said = job(plan(4))
            assert status == 0 and int(pool.read_text()) == 4, said
            files = {path.name for path in host.path("/etc/sysctl.d").iterdir()}
            assert files == {"60-hugeleaf.conf"}, files
            status, said = job(plan(4))
            assert status == 0 and "already as planned" in said, said
            # A changed plan of the chart: more pages, then fewer.
            for pages in (6, 2):
                status, said = job(plan(pages))
                assert status == 0 and int(pool.read_text()) == pages, said
            status, said = job(plan(2), name="report")
            assert status == 0 and "hugetlb" in said, said
            for expected in ("undone", "nothing to undo"):
                status, said = job(plan(2), name="undo")
                assert status == 0 and int(pool.read_text()) == before and expected in said, said
            assert not list(host.path("/etc/sysctl.d").iterdir())
        finally:
            pool.write_text(f"{before}\n")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = 0
    try:
        for function in TESTS:
            name = function.__name__.replace("_", " ")
            try:
                function()
                print(f"ok: {name}")
            except NotRun as reason:
                print(f"not run: the part of kubernetes about {name}: {reason}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {name}: {error}")
    finally:
        for file in FILES:
            pathlib.Path(file).unlink()
    sys.exit(failed > 0)


main()
