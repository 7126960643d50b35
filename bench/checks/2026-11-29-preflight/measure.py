"""Measures the time to populate memory and to register it with io_uring, by page size.

Each round runs all arms in random order. An arm maps memory, populates it with MADV_POPULATE_WRITE on one thread, registers
it with io_uring in buffers of 1 GiB (the kernel's maximum), and returns everything. Needs root: it sets the pools of 2M and 1G.
Run it under the host lock. One line of JSON per arm and round on standard output, the settings in the first line.
"""
import argparse
import ctypes
import json
import mmap
import os
import platform
import random
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.syscall.restype = ctypes.c_long

GIB = 1 << 30
MAP_HUGETLB, MAP_HUGE_SHIFT = 0x40000, 26
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_POPULATE_WRITE = 14, 15, 23
IO_URING_SETUP, IO_URING_REGISTER, REGISTER_BUFFERS, UNREGISTER_BUFFERS = 425, 427, 0, 1
ARMS = {"4K": (0, MADV_NOHUGEPAGE), "thp:2M": (0, MADV_HUGEPAGE), "hugetlb:2M": (21, None), "hugetlb:1G": (30, None)}


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def checked(result, call):
    if result == -1 or result == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")
    return result


def timed(call):
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def pool(kib):
    return f"/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"


def set_pool(kib, pages):
    with open(pool(kib), "w") as file:
        file.write(str(pages))
    with open(pool(kib)) as file:
        return int(file.read())


def aligned(length, log_page, advice):
    """Maps memory, aligned to 1 GiB, so that every buffer begins with a page."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if log_page:
        flags |= MAP_HUGETLB | log_page << MAP_HUGE_SHIFT
        start = checked(LIBC.mmap(None, length, 3, flags, -1, 0), "mmap")
        return start, start, length
    whole = length + GIB
    start = checked(LIBC.mmap(None, whole, 3, flags, -1, 0), "mmap")
    at = (start + GIB - 1) // GIB * GIB
    checked(LIBC.madvise(at, length, advice), "madvise")
    return at, start, whole


def register(ring, at, length):
    count = length // GIB
    buffers = (Iovec * count)(*[Iovec(at + i * GIB, GIB) for i in range(count)])
    checked(LIBC.syscall(IO_URING_REGISTER, ring, REGISTER_BUFFERS, ctypes.byref(buffers), count), "io_uring_register")


def anonymous_huge_bytes():
    with open("/proc/self/smaps_rollup") as file:
        line = next(line for line in file if line.startswith("AnonHugePages"))
    return int(line.split()[1]) << 10


def measure(arm, length, ring):
    log_page, advice = ARMS[arm]
    at, start, whole = aligned(length, log_page, advice)
    try:
        populate = timed(lambda: checked(LIBC.madvise(at, length, MADV_POPULATE_WRITE), "madvise"))
        huge = anonymous_huge_bytes()
        pin = timed(lambda: register(ring, at, length))
        unpin = timed(lambda: checked(LIBC.syscall(IO_URING_REGISTER, ring, UNREGISTER_BUFFERS, None, 0), "unregister"))
    finally:
        LIBC.munmap(start, whole)
    gb = length / 1e9
    on_thp = {"on_thp_share": round(huge / length, 3)} if arm == "thp:2M" else {}
    each = {"populate": populate, "register": pin, "unregister": unpin}
    return on_thp | {name: {"seconds_per_gb": wall / gb, "cpu_seconds_per_gb": cpu / gb} for name, (wall, cpu) in each.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    length = args.gib * GIB
    ring = checked(LIBC.syscall(IO_URING_SETUP, 1, ctypes.byref((ctypes.c_char * 256)())), "io_uring_setup")
    print(json.dumps({"kernel": platform.release(), "machine": platform.machine(), "cpus": os.cpu_count(),
                      "gib": args.gib, "rounds": args.rounds, "seed": args.seed, "load": os.getloadavg(),
                      "thp": open("/sys/kernel/mm/transparent_hugepage/enabled").read().strip()}))
    sizes = {"hugetlb:2M": (2048, length >> 21), "hugetlb:1G": (1 << 20, length >> 30)}
    for number in range(args.rounds):
        for arm in random.sample(list(ARMS), len(ARMS)):
            kib, pages = sizes.get(arm, (None, 0))
            if kib == 1 << 20:
                with open("/proc/sys/vm/compact_memory", "w") as file:
                    file.write("1")
            try:
                # A pool exists only during its own arm, so that no more than `gib` is in use.
                got = set_pool(kib, pages) if kib else 0
                if got < pages:
                    row = {"error": f"{got} of {pages} pages"}
                else:
                    row = measure(arm, length, ring)
            except OSError as error:
                row = {"error": str(error)}
            finally:
                if kib:
                    set_pool(kib, 0)
            print(json.dumps({"round": number, "arm": arm, **row}), flush=True)


main()
