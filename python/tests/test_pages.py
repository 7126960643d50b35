"""Page sizes of any array."""

from __future__ import annotations

import array
import mmap
import os

import numpy as np
import pytest
from conftest import MB, REPOSITORY, in_child

import hugeleaf

BASE = os.sysconf("SC_PAGE_SIZE")


def test_an_array_of_numpy_is_told(huge: int) -> None:
    plain = np.ones(64 * MB, "u1")
    pages = hugeleaf.pages(plain)
    assert pages.requested is None
    assert pages.nbytes == 64 * MB
    assert pages.resident_bytes == 64 * MB
    # Its first and last bytes are in pages that it shares.
    assert {extent.kind for extent in pages.extents} <= {"base", "thp"}
    assert sum(pages.by_page_size.values()) == 64 * MB


def test_memory_that_was_never_written_is_not_resident() -> None:
    memory = mmap.mmap(-1, 8 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages = hugeleaf.pages(memory)
    assert (pages.nbytes, pages.resident_bytes, pages.coverage) == (8 * MB, 0, None)
    assert str(pages) == "8M not in memory"
    memory[3 * MB] = 1
    pages = hugeleaf.pages(memory)
    assert BASE <= pages.resident_bytes <= 8 * MB
    assert pages.coverage is not None


def test_base_pages_and_huge_pages_of_one_array(huge: int) -> None:
    both = hugeleaf.zeros(3 * huge + 5 * BASE, "u1", pages="2M")
    if both.base.allocated_bytes != both.nbytes:
        pytest.skip("the rest was rounded up")
    pages = hugeleaf.pages(both)
    assert pages.by_page_size == {("thp", huge): 3 * huge, ("base", BASE): 5 * BASE}
    assert pages.extents[-1].reason and pages.extents[-1].next
    lines = str(pages).splitlines()
    assert "coverage 99" in lines[0] and lines[0].endswith("requested 2M")
    assert "smaller than" in lines[1] and "next: " in lines[2]


def test_a_small_array_says_what_to_request(huge: int) -> None:
    extent = hugeleaf.pages(hugeleaf.zeros(10)).extents[0]
    assert extent.kind == "base"
    assert extent.next == f"request a multiple of {huge >> 20}M"


def test_a_view_counts_its_own_range(huge: int) -> None:
    whole = hugeleaf.zeros((4, 2 * MB), "u1")
    assert hugeleaf.pages(whole[1]).nbytes == 2 * MB
    assert hugeleaf.pages(whole[:, 5]).nbytes == 3 * 2 * MB + 1
    assert hugeleaf.pages(whole[::-1, ::-1]).nbytes == 8 * MB
    assert hugeleaf.pages(whole[0, 3:3]).nbytes == 0
    assert hugeleaf.pages(whole[0, 7:9]).extents[0].address == whole.ctypes.data + 7
    readonly = whole[0]
    readonly.flags.writeable = False
    assert hugeleaf.pages(readonly).coverage == 1


@pytest.mark.parametrize("other", [b"x" * 100_000, bytearray(100_000), array.array("d", range(10_000)), memoryview(b"abc")])
def test_any_buffer_is_told(other: object) -> None:
    pages = hugeleaf.pages(other)
    assert pages.nbytes == memoryview(other).nbytes  # type: ignore[arg-type]
    assert pages.resident_bytes == pages.nbytes


@pytest.mark.parametrize("other", [b"", np.empty(0), np.empty((3, 0))])
def test_nothing_is_on_no_pages(other: object) -> None:
    pages = hugeleaf.pages(other)
    assert (pages.nbytes, pages.coverage, str(pages)) == (0, None, "0 bytes")


@pytest.mark.parametrize("other", [5, None, "text", [1, 2], object(), memoryview(bytes(10))[::2]])
def test_an_object_without_memory_is_refused(other: object) -> None:
    with pytest.raises(hugeleaf.InvalidRequest, match="next: pass an array"):
        hugeleaf.pages(other)


def test_a_child_splits_pages_and_that_is_seen(huge: int) -> None:
    ours = hugeleaf.zeros(4 * huge, "u1", pages="2M")

    def write() -> None:
        ours[::BASE] = 1
        coverage = hugeleaf.pages(ours).coverage
        assert coverage is not None

    in_child(write)
    assert hugeleaf.pages(ours).resident_bytes == 4 * huge


def test_sizes_are_printed_as_the_program_prints_them() -> None:
    """The table is that of the Rust test."""
    rows = [row.split("\t") for row in (REPOSITORY / "fixtures" / "sizes.tsv").read_text().splitlines() if row[0] != "#"]
    assert len(rows) > 10
    for number, text in rows[1:]:
        extent = hugeleaf.Extent(0, int(number), BASE, "base", 0)
        assert str(hugeleaf.Pages(None, (extent,))) == f"{text} not in memory"


def test_a_report_in_words() -> None:
    extents = (
        hugeleaf.Extent(0, 3 << 30, 1 << 30, "hugetlb", 3 << 30),
        hugeleaf.Extent(3 << 30, 5 * MB, 2 * MB, "thp", 4 * MB),
        hugeleaf.Extent(4 << 30, 6144, 4096, "base", 4096, "no contiguous 2M", "hugeleaf status"),
    )
    assert str(hugeleaf.Pages("1G,2M", extents)) == (
        "3G on hugetlb pages of 1G, 4M on THP of 2M, 4K on base pages of 4K, 1M not in memory"
        " (coverage 99.9 %), requested 1G,2M\n  6K: no contiguous 2M\n    next: hugeleaf status"
    )
