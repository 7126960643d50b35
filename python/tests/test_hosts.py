"""Hosts on which something is missing: space, huge pages, rights, /sys, a Python that is new enough, glibc."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import MB, REPOSITORY, THP, lock_host, run_python

import hugeleaf

PACKAGE = Path(hugeleaf.__file__).parent
WHEEL = os.environ.get("HUGELEAF_WHEEL")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_wheel = pytest.mark.skipif(WHEEL is None, reason="needs the wheel in HUGELEAF_WHEEL")

USE = """
import hugeleaf
memory = hugeleaf.buffer(8 << 20)
memoryview(memory)[5] = 1
report = hugeleaf.pages(memory)
assert report.nbytes == report.resident_bytes == 8 << 20, report
print("used", report)
try:
    hugeleaf.buffer(1 << 50)
except hugeleaf.AllocationError as error:
    assert error.next, error
    print("refused")
"""


@pytest.fixture
def no_huge_pages() -> Iterator[None]:
    """A host without huge pages: THP `never`, and no pages in the pools. No other test sees it."""
    knobs = {THP / "enabled": "never"}
    knobs |= {pool: "0" for pool in Path("/sys/kernel/mm/hugepages").glob("*/nr_hugepages")}
    if os.geteuid() != 0 or not (THP / "enabled").exists():
        pytest.skip("needs root and a kernel with huge pages, to switch them off")
    with lock_host(fcntl.LOCK_EX):
        before = {knob: knob.read_text().split("[")[-1].split("]")[0].strip() for knob in knobs}
        try:
            for knob, value in knobs.items():
                knob.write_text(value)
            yield
        finally:
            for knob, value in before.items():
                knob.write_text(value)


def in_shell(script: str, *unshare: str) -> subprocess.CompletedProcess[str]:
    """Run a script in namespaces of its own. `$python` is this interpreter."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    command = ["unshare", "--mount", *unshare, "sh", "-euc", script]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"python": sys.executable, "use": USE})
    if "Operation not permitted" in done.stderr and "python" not in done.stderr:
        pytest.skip(f"needs namespaces: {done.stderr.strip()}")
    return done


def test_with_thp_never_memory_can_be_used(no_huge_pages: None) -> None:
    """Some kernels collapse memory on request even then, so its pages are read, not assumed."""
    array = hugeleaf.zeros(8 * MB, "u1")
    array[::4096] = 1
    report = hugeleaf.pages(array)
    assert report.resident_bytes == 8 * MB and array.sum() == 8 * MB // 4096
    assert all(extent.kind == "thp" or (extent.reason and extent.next) for extent in report.extents)
    with pytest.raises(hugeleaf.AllocationError) as error:
        hugeleaf.zeros(8 * MB, "u1", pages="hugetlb:2M", strict=True)
    assert error.value.next
    with hugeleaf.numpy_arrays("2M"):
        plain = np.ones(8 * MB, "u1")
    assert plain.sum() == 8 * MB and hugeleaf.pages(plain).coverage == 0


def test_without_any_huge_pages_the_report_says_why() -> None:
    """A process that may not have any, by prctl(PR_SET_THP_DISABLE)."""
    code = """
import ctypes, hugeleaf
assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0
report = hugeleaf.pages(hugeleaf.buffer(8 << 20))
assert (report.coverage, report.resident_bytes) == (0, 8 << 20), report
assert all(extent.reason and extent.next for extent in report.extents), report
try:
    hugeleaf.buffer(8 << 20, pages="2M", strict=True)
except hugeleaf.AllocationError as error:
    print("refused", error.next)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused hugeleaf"), done.stdout


def test_the_program_reports_a_host_without_huge_pages(no_huge_pages: None) -> None:
    status = hugeleaf.status()
    assert status.host.thp is not None and status.host.thp.enabled == "never"
    assert all(not pool.total for pool in status.host.pools)


@needs_root
@pytest.mark.parametrize("hidden", ["/sys", "/sys/kernel/mm", "/proc"])
def test_without_files_of_the_kernel_memory_can_be_used(hidden: str) -> None:
    # Python itself needs nothing of /proc.
    done = in_shell(f'mount -t tmpfs none {hidden}; exec "$python" -c "$use"')
    if hidden == "/proc":
        # The page map is there, and without it the answer is an error and no guess.
        assert "AllocationError" in done.stderr and "next: " in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert "refused" in done.stdout


def test_in_a_user_namespace() -> None:
    done = in_shell('exec "$python" -c "$use"', "--user", "--map-root-user")
    assert done.returncode == 0, done.stderr
    assert "used 8M" in done.stdout and "refused" in done.stdout


@needs_root
def test_without_capabilities() -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    # Root without capabilities, as in a container: another user might not be able to read this Python.
    drop = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    done = subprocess.run([*drop, sys.executable, "-c", USE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "used 8M" in done.stdout and "refused" in done.stdout


@needs_root
def test_in_a_container(tmp_path: Path) -> None:
    """Runs in a container of runc: read-only root, no capabilities, /sys and parts of /proc hidden."""
    if shutil.which("runc") is None:
        pytest.skip("needs runc")
    kinds = ("pid", "ipc", "uts", "mount", "network")
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [sys.executable, "-c", USE],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": str(tmp_path / "root"), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/sys", "type": "tmpfs", "source": "none", "options": ["ro"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in kinds], "maskedPaths": ["/proc/kcore", "/proc/keys"]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "root").mkdir()
    run = f"runc --root {tmp_path}/state run --bundle {tmp_path} hugeleaf-python-{os.getpid()}"
    # The root of a container has to be a mount of its own.
    done = in_shell(f"mount --bind / {tmp_path}/root; exec {run}")
    if "unable to start container" in done.stderr:
        pytest.skip(f"runc cannot start a container here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert "used 8M" in done.stdout and "refused" in done.stdout


@needs_root
@needs_wheel
def test_an_installation_on_a_full_disk_fails_with_its_reason(tmp_path: Path) -> None:
    install = '"$python" -m pip install --disable-pip-version-check --no-index --no-deps --ignore-installed --prefix "$folder/env" "$HUGELEAF_WHEEL"'
    done = in_shell(f'folder={tmp_path}; mount -t tmpfs -o size=256k none "$folder"; {install}')
    assert done.returncode != 0
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@needs_root
def test_a_wheel_that_does_not_fit_is_not_packed(tmp_path: Path) -> None:
    pytest.importorskip("maturin", reason="needs maturin")
    code = f"import build_wheel, pathlib; build_wheel.STAGED = pathlib.Path('{tmp_path}'); build_wheel.stage('{sys.executable}', None)"
    script = f'mount -t tmpfs -o size=4k none {tmp_path}; cd {REPOSITORY}/python; exec "$python" -B -c "{code}"'
    done = in_shell(script)
    assert done.returncode == 1
    assert "No space left on device\n  next: " in done.stderr
    assert "Traceback" not in done.stderr


def old_python(version: str) -> str:
    """Return an interpreter of this version: of the system, or of pyenv."""
    others = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python3")
    for candidate in (shutil.which(f"python{version}"), *map(str, sorted(others))):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    pytest.skip(f"needs Python {version}")


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10"])
def test_an_old_python_is_refused_with_the_reason(version: str, tmp_path: Path) -> None:
    python = old_python(version)
    shutil.copytree(PACKAGE, tmp_path / "hugeleaf", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([python, "-B", "-c", "import hugeleaf"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert f"ImportError: hugeleaf needs Python 3.11 or newer, and this is {version}." in done.stderr
    assert "next: " in done.stderr


@needs_wheel
@pytest.mark.parametrize("version", ["3.9", "3.10"])
def test_pip_of_an_old_python_refuses_the_wheel(version: str) -> None:
    install = ["-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--no-deps", "--dry-run"]
    done = subprocess.run([old_python(version), *install, str(WHEEL)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is not a supported wheel on this platform" in done.stderr


@needs_wheel
def test_pip_on_musl_takes_no_wheel_of_glibc(tmp_path: Path) -> None:
    """Release wheels are tagged manylinux. A wheel built for this machine has no such tag, and its import explains."""
    name = Path(str(WHEEL)).name.replace("-linux_", "-manylinux_2_17_")
    shutil.copy(str(WHEEL), tmp_path / name)
    ask = ["-m", "pip", "download", "--disable-pip-version-check", "--no-index", "--no-deps", "--only-binary=:all:"]
    machine = os.uname().machine
    for tag, taken in ((f"musllinux_1_2_{machine}", False), (f"manylinux_2_17_{machine}", True)):
        where = ["--platform", tag, "--dest", str(tmp_path / tag), "--find-links", str(tmp_path), "hugeleaf"]
        done = subprocess.run([sys.executable, *ask, *where], capture_output=True, text=True)
        assert (done.returncode == 0) == taken, done.stderr
        assert taken or "No matching distribution found" in done.stderr
