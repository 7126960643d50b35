"""Prints pages, alignment and return of an array of 64M, and the growth after 1,000 arrays by 4 threads beside 20 forks."""

import gc
import json
import os
import statistics
import threading
import time
from pathlib import Path

import hugeleaf

MB = 1 << 20
HUGE = int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def returned() -> float:
    """Return the seconds from the end of the last view until the memory is gone."""
    before = resident()
    view = hugeleaf.zeros(64 * MB, "u1")[5:11]
    assert resident() >= before + 64 * MB
    start = time.monotonic()
    del view
    while resident() > before + MB:
        pass
    return time.monotonic() - start


def make(count: int) -> None:
    for number in range(count):
        array = hugeleaf.empty(256 << 10, "u1", pages="4K" if number % 2 else "2M")
        array[::4096] = 1


def threads(count: int) -> list[threading.Thread]:
    made = [threading.Thread(target=make, args=(count,)) for _ in range(4)]
    for thread in made:
        thread.start()
    return made


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        make(2)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


arrays = [hugeleaf.zeros(64 * MB, "u1") for _ in range(5)]
coverage = [hugeleaf.pages(array).coverage for array in arrays]
aligned = all(array.ctypes.data % HUGE == 0 for array in arrays)
del arrays
times = [returned() for _ in range(20)]
for thread in threads(10):
    thread.join()
gc.collect()
before = resident(), mappings()
began = threads(250)
for _ in range(20):
    fork()
for thread in began:
    thread.join()
gc.collect()
print(
    json.dumps(
        {
            "coverage_of_5_arrays_of_64M": coverage,
            "aligned_to_2M": aligned,
            "seconds_until_returned": {"median": statistics.median(times), "longest": max(times), "times": len(times)},
            "after_1000_arrays_4_threads_20_forks": {
                "resident_growth_bytes": resident() - before[0],
                "mappings_growth": mappings() - before[1],
            },
            "kernel": os.uname().release,
            "load": os.getloadavg(),
        },
        indent=1,
    )
)
