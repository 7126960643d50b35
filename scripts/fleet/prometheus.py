"""A Prometheus of its own, with its data in a temporary folder, on a free port of loopback."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request


class NotRun(Exception):
    """Something that this check needs is missing."""


def find(program: str) -> str:
    path = shutil.which(program)
    if not path:
        raise NotRun(f"{program} is not installed (on Debian: apt install prometheus)")
    return path


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def end_with_parent() -> None:
    """Ends the child with this process, however that ends: no Prometheus is left behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class Prometheus:
    def __init__(self, folder: str, config: str):
        self.folder = folder
        self.log = os.path.join(folder, "prometheus.log")
        path = os.path.join(folder, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    find("prometheus"),
                    f"--config.file={path}",
                    f"--storage.tsdb.path={folder}/data",
                    "--storage.tsdb.retention.time=3d",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=end_with_parent,
            )

    def __enter__(self) -> "Prometheus":
        try:
            until(300, "Prometheus is ready", self.is_ready)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def is_ready(self) -> bool:
        self.check()
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def check(self) -> None:
        """Fails with the end of its log if Prometheus has ended."""
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                end = "".join(log.readlines()[-5:])
            raise RuntimeError(f"Prometheus ended with status {self.process.returncode}. The end of its log:\n{end}")

    def ask(self, path: str, **parameters: object) -> object:
        self.check()
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            said = json.load(error)
        if said["status"] != "success":
            raise ValueError(said.get("error", said))
        if said.get("warnings"):
            raise ValueError("; ".join(said["warnings"]))
        return said["data"]

    def vector(self, query: str) -> dict[tuple, float]:
        """Returns the values of an instant query by sorted labels, without the metric's name."""
        result = self.ask("query", query=query)["result"]
        labels = lambda metric: tuple(sorted(item for item in metric.items() if item[0] != "__name__"))
        return {labels(one["metric"]): float(one["value"][1]) for one in result}

    def peak_memory_bytes(self) -> int:
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def scheduling(self) -> tuple[float, float]:
        """Returns the seconds in which its threads ran, and those in which they waited for a processor."""
        ran = waited = 0
        tasks = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            try:
                with open(f"{tasks}/{task}/schedstat", encoding="utf-8") as file:
                    one, other, _ = file.read().split()
            except FileNotFoundError:
                continue
            ran, waited = ran + int(one), waited + int(other)
        return ran / 1e9, waited / 1e9

    def version(self) -> str:
        return self.ask("status/buildinfo")["version"]


def until(seconds: float, wish: str, is_true) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            raise RuntimeError(f"after {seconds:.0f} s, not yet: {wish}")
        time.sleep(0.25)
