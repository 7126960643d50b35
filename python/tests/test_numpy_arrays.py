"""Arrays of unmodified code: NumPy's allocator in a `with` block."""

from __future__ import annotations

import contextvars
import gc
import threading

import numpy as np
import pytest
from conftest import MB, THP, in_child, mappings, resident, until
from numpy.testing import assert_array_equal

import hugeleaf


def handler_of(array: np.ndarray) -> str:
    multiarray = np.core.multiarray if np.__version__.startswith("1.") else np._core.multiarray
    return str(multiarray.get_handler_name(array))


def is_ours(array: np.ndarray) -> bool:
    return handler_of(array).startswith("hugeleaf ")


def test_large_arrays_are_on_huge_pages(huge: int) -> None:
    with hugeleaf.numpy_arrays("2M") as block:
        assert block.page_bytes == huge
        large = np.empty(64 * MB, "u1")
        small = np.ones(1000)
        computed = np.arange(4 * MB) * 2.0 + 1
    assert large.ctypes.data % huge == 0
    large[:] = 1
    assert hugeleaf.pages(large).coverage == 1
    assert hugeleaf.pages(computed).coverage == 1
    assert hugeleaf.pages(computed[5:]).requested == "2M"
    assert computed.ctypes.data % huge == 0
    assert small.sum() == 1000 and hugeleaf.pages(small).coverage == 0
    assert_array_equal(computed[:3], [1, 3, 5])


def test_nothing_is_populated_before_it_is_written(huge: int) -> None:
    before = resident()
    with hugeleaf.numpy_arrays("2M"):
        array = np.zeros(1 << 30, "u1")
    assert resident() < before + 64 * MB
    assert not array[::MB].any()
    array[5] = 1
    assert hugeleaf.pages(array).resident_bytes >= huge


def test_the_block_ends(huge: int) -> None:
    outside = handler_of(np.ones(1))
    with hugeleaf.numpy_arrays("2M"):
        with hugeleaf.numpy_arrays("4K"):
            assert handler_of(np.ones(1)) == "hugeleaf 4K"
        assert handler_of(np.ones(1)) == "hugeleaf 2M"
    assert handler_of(np.ones(1)) == outside
    with pytest.raises(ZeroDivisionError), hugeleaf.numpy_arrays("2M"):
        _ = 1 / 0
    assert handler_of(np.ones(1)) == outside
    again = hugeleaf.numpy_arrays("2M")
    with again, again:
        assert is_ours(np.ones(1))
    assert handler_of(np.ones(1)) == outside


def test_memory_is_returned(huge: int) -> None:
    gc.collect()
    memory, count = resident(), mappings()
    with hugeleaf.numpy_arrays("2M"):
        arrays = [np.ones(8 * MB, "u1") for _ in range(8)]
        assert resident() >= memory + 64 * MB
    view = arrays[3][5:]
    del arrays
    assert view.sum() == 8 * MB - 5
    del view
    gc.collect()
    until(lambda: resident() < memory + 8 * MB, 1)
    assert mappings() <= count + 2


def test_reused_memory_of_zeros_is_zero(huge: int) -> None:
    with hugeleaf.numpy_arrays("2M"):
        for size in (3 * MB, 8 * MB, 8 * MB + 1):
            for _ in range(4):
                np.full(size, 255, "u1")
                assert not np.zeros(size, "u1").any()


def test_arrays_grow_and_shrink(huge: int) -> None:
    with hugeleaf.numpy_arrays("2M"):
        array = np.arange(MB, dtype="i4")
        for size in (2 * MB, 9 * MB, MB, 100, 3, MB, 0, 5):
            kept = min(size, array.size)
            before = array[:kept].copy()
            array.resize(size, refcheck=False)
            assert_array_equal(array[:kept], before)
            assert not array[kept:].any()
        grown = np.fromiter(range(3 * MB), "i4")
        assert_array_equal(grown[-3:], [3 * MB - 3, 3 * MB - 2, 3 * MB - 1])


def test_min_bytes(huge: int) -> None:
    with hugeleaf.numpy_arrays("2M", min_bytes=1):
        tiny = np.ones(3)
        assert tiny.ctypes.data % huge == 0
    with hugeleaf.numpy_arrays("2M", min_bytes=1 << 40):
        large = np.ones(8 * MB)
        assert large.ctypes.data % huge != 0
    with hugeleaf.numpy_arrays("2M"):
        assert np.ones(huge - 1, "u1").ctypes.data % huge != 0
        assert np.ones(huge, "u1").ctypes.data % huge == 0


def test_base_pages_on_request(huge: int) -> None:
    with hugeleaf.numpy_arrays("4K"):
        array = np.ones(16 * MB, "u1")
    enabled = (THP / "enabled").read_text()
    assert hugeleaf.pages(array).coverage == 0, enabled


def test_many_arrays(huge: int) -> None:
    with hugeleaf.numpy_arrays("2M", min_bytes=1):
        arrays = [np.full(1, number) for number in range(20_000)]
        assert [int(array[0]) for array in arrays] == list(range(20_000))
        del arrays[::2]
        more = [np.full(1, -number) for number in range(10_000)]
    assert all(array[0] == 2 * at + 1 for at, array in enumerate(arrays))
    assert all(array[0] == -at for at, array in enumerate(more))


def test_more_than_memory_is_an_error(huge: int) -> None:
    with hugeleaf.numpy_arrays("2M"):
        with pytest.raises(MemoryError):
            np.empty(1 << 60, "u1")
        with pytest.raises((MemoryError, ValueError)):
            np.zeros((1 << 31, 1 << 31))
        assert np.ones(3).sum() == 3


def test_threads_and_contexts(huge: int) -> None:
    found: dict[str, bool] = {}

    def note(name: str) -> None:
        found[name] = is_ours(np.ones(1))

    shared = hugeleaf.numpy_arrays("2M")

    def enter() -> None:
        with shared:
            for _ in range(50):
                array = np.ones(3 * MB, "u1")
                assert array.sum() == 3 * MB
            note("entered")
        note("left")

    with hugeleaf.numpy_arrays("2M"):
        context = contextvars.copy_context()
        threads = [threading.Thread(target=enter) for _ in range(4)]
        threads.append(threading.Thread(target=context.run, args=(note, "copied")))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {"entered": True, "left": False, "copied": True}


def test_children(huge: int) -> None:
    with hugeleaf.numpy_arrays("2M"):
        kept = np.ones(4 * MB, "u1")

        def work() -> None:
            assert kept.sum() == 4 * MB
            kept[:] = 2
            for _ in range(10):
                assert np.ones(3 * MB, "u1").sum() == 3 * MB

        for _ in range(20):
            in_child(work)
    assert kept.sum() == 4 * MB


@pytest.mark.parametrize("pages", ["hugetlb:2M", "2M,hugetlb:2M", "3M", "", "1E!"])
def test_pages_that_cannot_be_are_refused(pages: str) -> None:
    with pytest.raises(hugeleaf.Error, match="next: "):
        hugeleaf.numpy_arrays(pages)
    with pytest.raises(hugeleaf.InvalidRequest):
        hugeleaf.numpy_arrays("2M", min_bytes=0)
    assert not is_ours(np.ones(1))


def test_sizes_that_this_host_lacks_change_nothing() -> None:
    with hugeleaf.numpy_arrays("1E") as block:
        assert block.page_bytes is None
        array = np.ones(8 * MB, "u1")
    assert hugeleaf.pages(array).nbytes == 8 * MB


def test_pages_of_a_library(huge: int) -> None:
    """Libraries allocate their results through NumPy."""
    with hugeleaf.numpy_arrays("2M"):
        table = np.loadtxt(["1 2 3"] * 100_000)
        ordered = np.argsort(table, axis=None)
        joined = np.concatenate([table, table])
    for array in (ordered, joined):
        assert hugeleaf.pages(array).requested == "2M"

