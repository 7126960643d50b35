"""Loads on arrays, by the pages of their memory: random gather, hash join, group-by, vector search, sparse product.

    arrays.py index FILE BYTES                      make an index of vectors of about BYTES
    arrays.py measure PAGES BYTES FILE SECONDS      measure each load on BYTES of memory for SECONDS of CPU time

PAGES: `base` (NumPy, its advice to use huge pages switched off), `numpy` (NumPy as it is), `thp:2M`, `hugetlb:2M` and
`hugetlb:1G` (hugeleaf).

All loads of a process use the same memory, one after the other. What surrounds it, as indices and results, is small and
NumPy's own. Each load runs on one thread and prints its rate by CPU time and by wall time. Exit status 77: this host
does not have the pages.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

if sys.argv[1:2] == ["measure"]:
    # NumPy reads it when it is imported.
    os.environ["NUMPY_MADVISE_HUGEPAGE"] = "0" if sys.argv[2] == "base" else "1"

import hugeleaf
import numpy as np
from scipy.sparse import csr_matrix
from usearch.index import Index

UNSUPPORTED = 77
# Requests of hugeleaf.
OURS = {"thp:2M": "2M", "hugetlb:2M": "hugetlb:2M", "hugetlb:1G": "hugetlb:1G"}
CHUNK = 1 << 16
DRAWN = 1 << 22
DIMENSIONS = 384
# An odd factor: modulo a power of two, each key has another product.
SPREAD = 0x9E3779B97F4A7C15
ENTRIES_OF_A_ROW = 8

def vectors(count: int, seed: int) -> np.ndarray:
    """Return points around 256 centres, since embeddings are not spread evenly."""
    centres = np.random.default_rng(7).standard_normal((256, DIMENSIONS), dtype="f4")
    draw = np.random.default_rng(seed)
    return centres[draw.integers(0, 256, count)] + 0.5 * draw.standard_normal((count, DIMENSIONS), dtype="f4")


def make_index(file: str, size: int) -> None:
    index = Index(ndim=DIMENSIONS, metric="l2sq", dtype="f32", connectivity=16, expansion_add=40)
    step = 1000
    for seed in range(size // (step * DIMENSIONS * 4) + 1):
        grown = index.serialized_length * (seed + 1) // max(seed, 1)
        if seed and grown > size:
            break
        index.add(np.arange(seed * step, (seed + 1) * step), vectors(step, seed))
    index.save(file + ".part")
    os.replace(file + ".part", file)


def unsupported(reason: str) -> NoReturn:
    print(reason)
    sys.exit(UNSUPPORTED)


def memory_on(pages: str, size: int) -> np.ndarray:
    """Return populated memory on these pages."""
    if pages in ("base", "numpy"):
        memory = np.empty(size, "u1")
    else:
        try:
            # As NumPy, THP may leave a part on base pages. A pool has all or nothing.
            memory = hugeleaf.empty(size, "u1", pages=OURS[pages], strict=pages.startswith("hugetlb"))
        except hugeleaf.AllocationError as error:
            unsupported(str(error).replace("\n", " "))
    memory[:: os.sysconf("SC_PAGE_SIZE")] = 1
    memory[-1] = 1
    report = hugeleaf.pages(memory)
    coverage = report.coverage or 0.0
    print(f"coverage {coverage:.4f}: {report}".splitlines()[0])
    if pages == "base" and coverage > 0.05:
        unsupported(f"base pages have a coverage of {coverage:.0%}: set transparent huge pages to madvise")
    if pages in OURS and coverage < 0.5:
        unsupported(f"huge pages have a coverage of {coverage:.0%} only")
    return memory


# Each load yields 0 once its data is in memory, and then the number of its operations, again and again.


def gather(memory: np.ndarray) -> Iterator[int]:
    """Read elements of an array at random places."""
    table = memory.view("i8")
    for start in range(0, len(table), CHUNK):
        table[start : start + CHUNK] = np.arange(start, start + CHUNK)[: len(table) - start]
    wanted = np.random.default_rng(1).integers(0, len(table), DRAWN)
    found = np.empty(CHUNK, "i8")
    yield 0
    for part in endless(wanted):
        np.take(table, part, out=found, mode="clip")
        assert found[0] == part[0] and found[-1] == part[-1]
        yield CHUNK


def hash_join(memory: np.ndarray) -> Iterator[int]:
    """Look keys up in a half full hash table with linear probing; half of the keys are missing."""
    slots = 1 << ((len(memory) // 16).bit_length() - 1)
    rows = memory[: slots * 16].view([("key", "i8"), ("value", "i8")])
    mask = np.uint64(slots - 1)
    back = np.uint64(pow(SPREAD, -1, slots))
    for start in range(0, slots, CHUNK):
        part = rows[start : start + CHUNK]
        # The key whose place this is. Half of the keys exist.
        keys = (np.arange(start, start + len(part), dtype="u8") * back & mask).astype("i8")
        part["key"] = np.where(keys < slots // 2, keys, -1)
        part["value"] = keys * 3
    wanted = np.random.default_rng(1).integers(0, slots, DRAWN)
    yield 0
    for part in endless(wanted):
        place = (part.astype("u8") * np.uint64(SPREAD) & mask).astype("i8")
        keys, total = part, 0
        while len(keys):
            found = rows[place]
            hit = found["key"] == keys
            total += int(found["value"][hit].sum())
            # An empty slot ends a search.
            more = ~hit & (found["key"] >= 0)
            keys, place = keys[more], (place[more] + 1) & (slots - 1)
        assert total == 3 * int(part[part < slots // 2].sum())
        yield CHUNK


def group_by(memory: np.ndarray) -> Iterator[int]:
    """Add values to the sums of many groups."""
    sums = memory.view("f8")
    sums[:] = 0
    groups = np.random.default_rng(1).integers(0, len(sums), DRAWN)
    values = np.ones(CHUNK)
    yield 0
    for part in endless(groups):
        np.add.at(sums, part, values)
        assert sums[part[0]] >= 1
        yield CHUNK


def vector_search(memory: np.ndarray) -> Iterator[int]:
    """Find the ten nearest vectors in the segments of an index that is used in place (HNSW)."""
    file = Path(sys.argv[4])
    size = file.stat().st_size
    segments = []
    for start in range(0, len(memory) - size + 1, size):
        with open(file, "rb", buffering=0) as data:
            part = memory[start : start + size]
            done = 0
            while done < size:
                done += data.readinto(part[done:])
        # All segments have the same content, in other memory.
        segments.append(Index.restore(part, view=True))
    known = vectors(1000, 0)[:100]
    for segment in segments:
        nearest = segment.search(known, 1, threads=1).keys
        assert (nearest[:, 0] == np.arange(100)).mean() >= 0.8, "points do not find themselves"
    asked = vectors(2000, 1 << 20)
    yield 0
    while True:
        for query in range(len(asked)):
            for segment in segments:
                assert len(segment.search(asked[query], 10, threads=1)) == 10
            yield 1


def sparse_product(memory: np.ndarray) -> Iterator[int]:
    """Multiply a sparse matrix, with its entries in random columns, by a vector."""
    each = ENTRIES_OF_A_ROW
    rows = (len(memory) - 64) // (12 * each + 4 + 8)
    entries = rows * each
    taken = 0

    def array(count: int, dtype: str) -> np.ndarray:
        nonlocal taken
        size = count * np.dtype(dtype).itemsize
        made = memory[taken : taken + size].view(dtype)
        taken += -(-size // 8) * 8
        return made

    data, vector = array(entries, "f8"), array(rows, "f8")
    columns, starts = array(entries, "i4"), array(rows + 1, "i4")
    data[:] = 1
    vector[:] = 1
    starts[:] = np.arange(0, entries + 1, each, dtype="i4")
    draw = np.random.default_rng(1)
    for start in range(0, entries, DRAWN):
        part = columns[start : start + DRAWN]
        part[:] = draw.integers(0, rows, len(part), "i4")
    # Parts of the matrix, so that a run can be short.
    height = max(rows // 64, 1)
    part = csr_matrix((height, rows))
    part.indptr = starts[: height + 1]
    yield 0
    while True:
        for top in range(0, rows - height + 1, height):
            begin, end = top * each, (top + height) * each
            # Its constructor copies parts of arrays.
            part.data, part.indices = data[begin:end], columns[begin:end]
            product = part @ vector
            assert product[0] == product[-1] == each
            yield end - begin


def endless(drawn: np.ndarray) -> Iterator[np.ndarray]:
    while True:
        for start in range(0, len(drawn), CHUNK):
            yield drawn[start : start + CHUNK]


def measure(pages: str, size: int, seconds: float) -> None:
    memory = memory_on(pages, size)
    for load in (gather, hash_join, group_by, vector_search, sparse_product):
        steps = load(memory)
        next(steps)
        warm = time.process_time() + seconds / 4
        while time.process_time() < warm:
            next(steps)
        cpu, wall, done = time.process_time(), time.perf_counter(), 0
        while time.process_time() < cpu + seconds:
            done += next(steps)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(f"{load.__name__} {done / cpu:.6g} {done / wall:.6g}", flush=True)
        steps.close()


def main() -> None:
    match sys.argv[1:]:
        case ["index", file, size]:
            make_index(file, int(size))
        case ["measure", pages, size, _, seconds] if pages in ("base", "numpy", *OURS):
            measure(pages, int(size), float(seconds))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
