"""Tests of the Helm chart with a real API server; scripts/kubernetes-api.sh calls them."""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import yaml

CHART = pathlib.Path("contrib/kubernetes/hugeleaf")
CI = sorted((CHART / "ci").glob("*.yaml"))
NAMESPACE = "hugeleaf"
TOKEN = "of-this-test"

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--helm", required=True)
options.add_argument("--kubernetes", required=True)
options.add_argument("--etcd", required=True)
arguments = options.parse_args()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def running(folder, name, words):
    """Runs a program in the background, with its output in a file. It ends with this process."""
    log = folder / f"{name}.log"
    with open(log, "w") as file:
        words = ["setpriv", "--pdeathsig", "KILL", "--", *map(str, words)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def check():
        assert process.poll() is None, f"{name} has ended:\n{log.read_text()[-4000:]}"

    try:
        yield check
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Cluster:
    """An API server with kubectl."""

    def __init__(self, folder, port):
        self.server = f"https://127.0.0.1:{port}"
        self.kubectl_path = folder / "kubectl"
        self.environment = {**os.environ, "HOME": str(folder), "KUBECONFIG": "/dev/null"}

    def kubectl(self, *words, given=None, ok=True):
        rights = ["--server", self.server, "--token", TOKEN, "--insecure-skip-tls-verify"]
        text = None if given is None else json.dumps({"apiVersion": "v1", "kind": "List", "items": given})
        run = subprocess.run(
            [self.kubectl_path, *rights, *words], input=text, capture_output=True, text=True, env=self.environment
        )
        if ok:
            assert run.returncode == 0, f"kubectl {words}: {run.stdout}{run.stderr}"
        return run


@contextlib.contextmanager
def cluster():
    with tempfile.TemporaryDirectory(prefix="hugeleaf-api-") as folder:
        folder = pathlib.Path(folder)
        for name in ("kube-apiserver", "kubectl"):
            (folder / name).symlink_to(arguments.kubernetes)
        subprocess.run(
            ["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True
        )
        (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        etcd, peers, port = free_port(), free_port(), free_port()
        etcd_words = [
            arguments.etcd,
            "--data-dir", folder / "etcd",
            "--listen-client-urls", f"http://127.0.0.1:{etcd}",
            "--advertise-client-urls", f"http://127.0.0.1:{etcd}",
            "--listen-peer-urls", f"http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        ]
        server_words = [
            folder / "kube-apiserver",
            "--etcd-servers", f"http://127.0.0.1:{etcd}",
            "--bind-address", "127.0.0.1",
            # Nothing else has to find this server, and it cannot be found at an address of loopback.
            "--endpoint-reconciler-type", "none",
            "--secure-port", port,
            "--cert-dir", folder / "certificates",
            "--authorization-mode", "RBAC",
            "--token-auth-file", folder / "tokens.csv",
            "--service-account-issuer", "https://127.0.0.1",
            "--service-account-key-file", folder / "accounts.key",
            "--service-account-signing-key-file", folder / "accounts.key",
            "--service-cluster-ip-range", "10.0.0.0/24",
        ]
        with running(folder, "etcd", etcd_words) as has_etcd, running(folder, "kube-apiserver", server_words) as has_server:
            one = Cluster(folder, port)
            ends = time.monotonic() + 300
            while one.kubectl("get", "--raw", "/readyz", ok=False).returncode != 0:
                has_etcd()
                has_server()
                assert time.monotonic() < ends, (folder / "kube-apiserver.log").read_text()[-4000:]
                time.sleep(0.5)
            yield one


def rendered(file):
    """Returns the objects of a values file, except those of the Prometheus operator, which the server does not know."""
    words = ["template", "hugeleaf", CHART, "--namespace", NAMESPACE, "--values", file, "--kube-version", "1.37.0"]
    text = subprocess.run([arguments.helm, *words], check=True, capture_output=True, text=True).stdout
    objects = [one for one in yaml.safe_load_all(text) if one]
    return [one for one in objects if one["apiVersion"] != "monitoring.coreos.com/v1"]


def the_server_validates_each_object(server):
    count = 0
    for file in CI:
        objects = rendered(file)
        if not objects:
            continue
        said = server.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", "-", given=objects)
        assert not said.stderr, f"{file.name}: {said.stderr}"
        count += len(objects)
    # Unknown fields are errors with these options.
    unknown = rendered(CHART / "ci/exporter.yaml")
    next(one for one in unknown if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]["hostPid"] = True
    words = ["apply", "--dry-run=server", "--validate=strict", "--filename", "-"]
    said = server.kubectl(*words, given=unknown, ok=False)
    assert said.returncode != 0 and "hostPid" in said.stderr, said
    return f"{count} objects of {len(CI)} values files"


def accounts_have_no_rights_of_their_own(server):
    """Compares the rights of each account with those of one that no object mentions."""
    server.kubectl("apply", "--validate=strict", "--filename", "-", given=rendered(CHART / "ci/all.yaml"))

    def rights(account):
        said = server.kubectl("auth", "can-i", "--list", "--namespace", NAMESPACE, "--as", f"system:serviceaccount:{NAMESPACE}:{account}")
        return sorted(said.stdout.splitlines())

    expected = rights("mentioned-nowhere")
    found = json.loads(server.kubectl("get", "serviceaccounts", "--namespace", NAMESPACE, "--output", "json").stdout)
    names = sorted(one["metadata"]["name"] for one in found["items"])
    assert len(names) == 3, names
    for name in names:
        assert rights(name) == expected, f"{name}: {rights(name)}"
        for verb, kind in (("get", "pods"), ("list", "nodes"), ("get", "secrets"), ("create", "pods")):
            account = f"system:serviceaccount:{NAMESPACE}:{name}"
            said = server.kubectl("auth", "can-i", verb, kind, "--namespace", NAMESPACE, "--as", account, ok=False)
            assert said.stdout.strip() == "no", f"{name} may {verb} {kind}"
    # The comparison finds a right that is granted.
    server.kubectl("create", "clusterrole", "granted", "--verb=get", "--resource=pods")
    server.kubectl("create", "clusterrolebinding", "granted", "--clusterrole=granted", f"--serviceaccount={NAMESPACE}:{names[0]}")
    ends = time.monotonic() + 60
    while rights(names[0]) == expected:
        assert time.monotonic() < ends, f"the role of {names[0]} shows no rights"
        time.sleep(0.5)
    return f"{', '.join(names)}: the {len(expected) - 1} rules of every account"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = 0
    with cluster() as server:
        server.kubectl("create", "namespace", NAMESPACE, "--save-config")
        server.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
        version = json.loads(server.kubectl("version", "--output", "json").stdout)["serverVersion"]["gitVersion"]
        for test in (the_server_validates_each_object, accounts_have_no_rights_of_their_own):
            name = test.__name__.replace("_", " ")
            try:
                print(f"ok: {name} ({version}): {test(server)}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {name}: {error}")
    sys.exit(failed != 0)


main()
