"""Shared parts of the tests. They test the installed package, so run them from another folder.

A test that cannot run here is skipped, with the reason. Nothing asserts a time, but for the second
that an array may take to be returned.
"""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MB = 1 << 20
REPOSITORY = Path(os.environ.get("HUGELEAF_REPOSITORY", Path(__file__).resolve().parents[2]))
THP = Path("/sys/kernel/mm/transparent_hugepage")
LOCK = "/run/lock/hugeleaf.lock"


def huge_page() -> int:
    """Return the size of a huge page, 0 if this kernel has none or they are off."""
    try:
        if "[never]" in (THP / "enabled").read_text():
            return 0
        return int((THP / "hpage_pmd_size").read_text())
    except OSError:
        return 0


@contextmanager
def lock_host(how: int) -> Iterator[None]:
    """Keep other tests from changing the host meanwhile: the lock of the project's Rust tests."""
    try:
        lock = os.open(LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError:
        try:
            lock = os.open(LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield
            return
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


@pytest.fixture
def huge() -> Iterator[int]:
    """Size of a huge page, on a host that no other test changes."""
    with lock_host(fcntl.LOCK_SH):
        size = huge_page()
        if not size:
            pytest.skip("needs transparent huge pages")
        yield size


@pytest.fixture
def pool() -> Iterator[int]:
    """A pool of eight pages of the default size, alone on the host. Returns the size."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to set a pool")
    knob = Path("/proc/sys/vm/nr_hugepages")
    if not knob.exists():
        pytest.skip("needs a kernel with hugetlb pages")
    with lock_host(fcntl.LOCK_EX):
        before = int(knob.read_text())
        wanted = before + 8
        try:
            knob.write_text(str(wanted))
            if int(knob.read_text()) != wanted:
                pytest.skip("needs eight contiguous huge pages")
            lines = Path("/proc/meminfo").read_text().splitlines()
            size = next(line for line in lines if line.startswith("Hugepagesize:"))
            yield int(size.split()[1]) * 1024
        finally:
            gc.collect()
            knob.write_text(str(before))


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition, generously."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def in_child(work: Callable[[], None]) -> None:
    """Run it in a forked child, which must succeed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status:#x}"
