"""Runs the containers of rendered pods on this host with runc, set up as a kubelet and its runtime do."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

# Defaults of a container runtime for containers that are not privileged.
MASKED = [
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
    "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
# The profile of podman, which Debian packages. It differs from containerd's in details only.
SECCOMP = pathlib.Path("/usr/share/containers/seccomp.json")


def seccomp(capabilities):
    """Returns the runtime's default profile for a container with these capabilities, or None where there is none."""
    if not SECCOMP.exists():
        return None
    text = json.loads(SECCOMP.read_text())
    names = {f"CAP_{name}" for name in capabilities}

    def applies(rule):
        include, exclude = rule.get("includes") or {}, rule.get("excludes") or {}
        arches = include.get("arches")
        return (
            names.issuperset(include.get("caps", []))
            and not names.intersection(exclude.get("caps", []))
            and (not arches or {"amd64": "x86_64"}.get(arches[0], arches[0]) == os.uname().machine)
        )

    rules = [
        {key: rule[key] for key in ("names", "action", "args", "errnoRet") if rule.get(key)}
        for rule in text["syscalls"]
        if applies(rule)
    ]
    own = f"SCMP_ARCH_{os.uname().machine.upper()}"
    arches = [arch for entry in text["archMap"] if entry["architecture"] == own for arch in (own, *(entry["subArchitectures"] or []))]
    return {
        "defaultAction": text["defaultAction"],
        "defaultErrnoRet": text.get("defaultErrnoRet", 1),
        "architectures": arches,
        "syscalls": rules,
    }


class Node:
    """A folder that holds the host's files of a test, and the real /sys and processes of this host."""

    def __init__(self, program, runc):
        self.runc = runc
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hugeleaf-node-"))
        self.files = self.folder / "files"
        self.image = self.folder / "image"
        self.count = 0
        for folder in ("etc", "run/systemd/system", "var/lib", "var/log"):
            (self.files / folder).mkdir(parents=True)
        (self.files / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        self._make_image(pathlib.Path(program))

    def _make_image(self, program):
        for folder in ("proc", "sys", "dev", "tmp", "usr/bin"):
            (self.image / folder).mkdir(parents=True)
        shutil.copy2(program, self.image / "usr/bin/hugeleaf")
        # The image of a release holds a static program. A build for tests needs libraries.
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for word in listed.split():
            if word.startswith("/") and pathlib.Path(word).exists():
                (self.image / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(word, self.image / word[1:])

    def remove(self):
        shutil.rmtree(self.folder)

    def path(self, path):
        return pathlib.Path(path) if path.startswith("/sys/") else self.files / path[1:]

    def _host_path(self, volume):
        path, type = self.path(volume["path"]), volume["type"]
        if type == "DirectoryOrCreate":
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        is_there = path.is_file() if type == "File" else path.is_dir()
        if not is_there:
            raise AssertionError(f"hostPath type check failed: {path} is not a {type}")
        return path

    def _config_map(self, volume, maps, bundle):
        """Writes a ConfigMap as the kubelet does: links in a folder that all may write to."""
        data = next(one["data"] for one in maps if one["metadata"]["name"] == volume["name"])
        items = volume.get("items") or [{"key": key, "path": key} for key in data]
        folder = bundle / f"map-{volume['name']}"
        real = folder / "..1"
        for item in items:
            file = real / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(data[item["key"]])
            file.chmod(volume.get("defaultMode", 0o644))
            top = pathlib.PurePath(item["path"]).parts[0]
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(f"..data/{top}")
        (folder / "..data").symlink_to("..1")
        folder.chmod(0o777)
        return folder

    def _mounts(self, pod, container, maps, bundle):
        quiet = ["nosuid", "noexec", "nodev"]
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": quiet},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*quiet, "ro"]},
        ]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in container["volumeMounts"]:
            volume, read_only = volumes[mount["name"]], mount.get("readOnly", False)
            if "emptyDir" in volume:
                source = bundle / mount["name"]
                source.mkdir(mode=0o777)
            elif "configMap" in volume:
                source, read_only = self._config_map(volume["configMap"], maps, bundle), True
                if "subPath" in mount:
                    source = (source / mount["subPath"]).resolve()
            else:
                source = self._host_path(volume["hostPath"])
            kind = ["rbind", "rprivate", "ro" if read_only else "rw"]
            mounts.append({"destination": mount["mountPath"], "type": "bind", "source": str(source), "options": kind})
        if not any(mount["mountPath"] == "/sys/fs/cgroup" for mount in container["volumeMounts"]):
            mounts.append({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": [*quiet, "ro"]})
        return mounts

    def _runc(self, *words, **more):
        return subprocess.run([self.runc, "--root", self.folder / "runc", *words], stdin=subprocess.DEVNULL, text=True, **more)

    def run(self, pod, container, maps, arguments=None, timeout=300):
        """Runs one container of a pod to its end. `arguments` replace those of the container."""
        name, bundle = self._bundle(pod, container, maps, arguments)
        try:
            return self._runc("run", "--bundle", bundle, name, capture_output=True, timeout=timeout)
        finally:
            self._runc("delete", "--force", name, capture_output=True)

    @contextlib.contextmanager
    def running(self, pod, container, maps):
        """Runs a container in the background, and yields its name, its process, and the file of its output."""
        name, bundle = self._bundle(pod, container, maps, None)
        output = bundle / "output"
        with open(output, "w") as file:
            words = [self.runc, "--root", self.folder / "runc", "run", "--bundle", bundle, name]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        try:
            yield name, process, output
        finally:
            self._runc("delete", "--force", name, capture_output=True)
            process.wait()

    def exec(self, name, *words):
        """Runs the program once more in a running container, as kubectl exec does."""
        return self._runc("exec", name, "/usr/bin/hugeleaf", *words, capture_output=True)

    def stop(self, name):
        self._runc("kill", name, "TERM", check=True)

    def _bundle(self, pod, container, maps, arguments):
        self.count += 1
        name = f"hugeleaf-test-{os.getpid()}-{self.count}"
        bundle = self.folder / name
        bundle.mkdir()
        rights = container["securityContext"]
        added = rights["capabilities"].get("add", [])
        capabilities = [f"CAP_{one}" for one in added]
        spaces = ["mount", "ipc", "uts", "network", "cgroup", *([] if pod.get("hostPID") else ["pid"])]
        config = {
            "ociVersion": "1.0.2",
            "hostname": "pod",
            "root": {"path": str(self.image), "readonly": rights["readOnlyRootFilesystem"]},
            "process": {
                "terminal": False,
                "cwd": "/",
                "env": ["PATH=/usr/bin"],
                "user": {"uid": pod["securityContext"]["runAsUser"], "gid": pod["securityContext"]["runAsGroup"]},
                "args": container["command"] + [str(word) for word in (arguments or container["args"])],
                "noNewPrivileges": not rights["allowPrivilegeEscalation"],
                "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")},
            },
            "mounts": self._mounts(pod, container, maps, bundle),
            "linux": {
                "namespaces": [{"type": space} for space in spaces],
                "maskedPaths": MASKED,
                "readonlyPaths": READ_ONLY,
                "seccomp": seccomp(added),
                "resources": {
                    "devices": [{"allow": False, "access": "rwm"}],
                    "memory": {"limit": 256 << 20},
                },
            },
        }
        (bundle / "config.json").write_text(json.dumps(config))
        return name, bundle
