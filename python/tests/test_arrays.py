"""Arrays on huge pages: content, page sizes, life, and requests that are refused."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from conftest import MB, in_child, mappings, resident, run_python, until
from numpy.testing import assert_array_equal

import hugeleaf


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_64_megabytes_are_on_huge_pages_and_returned_with_the_last_view(huge: int) -> None:
    before = resident()
    array = hugeleaf.zeros(64 * MB, "u1")
    assert address(array) % huge == 0
    assert hugeleaf.pages(array).coverage == 1
    assert resident() >= before + 64 * MB
    view = array[5:11].reshape(2, 3).T
    del array
    gc.collect()
    assert resident() >= before + 64 * MB, "the view still uses it"
    assert view.sum() == 0
    start = time.monotonic()
    del view
    until(lambda: resident() < before + 8 * MB)
    assert time.monotonic() - start < 1


@pytest.mark.parametrize("dtype", ["u1", "f8", "c16", "M8[ns]", "U7", "S3", "?", "i4,f8", "(2,3)f4", "V5"])
@pytest.mark.parametrize("shape", [0, 7, (), (3, 0, 2), (2, 3, 4), [5, 1]])
@pytest.mark.parametrize("order", ["C", "F"])
def test_it_is_an_array_like_that_of_numpy(shape: object, dtype: str, order: str) -> None:
    ours = hugeleaf.zeros(shape, dtype, order=order)
    theirs = np.zeros(shape, dtype, order=order)
    assert type(ours) is np.ndarray
    assert (ours.shape, ours.dtype, ours.strides) == (theirs.shape, theirs.dtype, theirs.strides)
    assert_array_equal(ours, theirs)
    assert ours.flags.writeable and ours.flags.aligned
    assert ours.flags.c_contiguous == theirs.flags.c_contiguous
    assert ours.flags.f_contiguous == theirs.flags.f_contiguous


def test_full_takes_the_dtype_of_its_value() -> None:
    for value in (7, 2.5, 1j, True, "text", np.float32(3), np.datetime64("2026-01-01")):
        assert_array_equal(hugeleaf.full((2, 3), value), np.full((2, 3), value))
        assert hugeleaf.full(3, value).dtype == np.full(3, value).dtype
    assert_array_equal(hugeleaf.full((2, 3), [1, 2, 3], "i2"), np.full((2, 3), [1, 2, 3], "i2"))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"shape": -1}, ValueError),
        ({"shape": (4, -2)}, ValueError),
        ({"shape": (0, -1)}, ValueError),
        ({"shape": 3, "dtype": object}, ValueError),
        ({"shape": 3, "dtype": [("a", "i4"), ("b", "O")]}, ValueError),
        ({"shape": 3, "dtype": "no dtype"}, TypeError),
        ({"shape": 1.5}, TypeError),
        ({"shape": "3"}, TypeError),
        ({"shape": None}, TypeError),
        ({"shape": (1,) * 65}, ValueError),
        ({"shape": 3, "order": "K"}, ValueError),
        ({"shape": 3, "pages": "3M"}, ValueError),
        ({"shape": 3, "pages": ""}, ValueError),
        ({"shape": 3, "pages": "2M,1G"}, ValueError),
        ({"shape": 3, "pages": "bogus:2M"}, ValueError),
        ({"shape": 3, "pages": 2}, TypeError),
        ({"shape": 3, "node": 4095}, ValueError),
        ({"shape": 3, "node": -1}, ValueError),
        ({"shape": 3, "node": 2**40}, ValueError),
        ({"shape": 3, "node": []}, ValueError),
        ({"shape": 3, "node": "0"}, TypeError),
        ({"shape": 1 << 50}, MemoryError),
        ({"shape": 1 << 62}, MemoryError),
        ({"shape": 1 << 100}, MemoryError),
        ({"shape": (1 << 40, 1 << 40)}, MemoryError),
        ({"shape": 3, "pages": "1E!"}, MemoryError),
        ({"shape": 3, "pages": "1E", "strict": True}, MemoryError),
    ],
)
def test_an_impossible_request_is_refused(arguments: dict, kind: type[Exception]) -> None:
    before = mappings()
    with pytest.raises(kind) as error:
        hugeleaf.empty(**arguments)
    if isinstance(error.value, hugeleaf.Error):
        assert error.value.next, "it says what to do"
        assert str(error.value).endswith(f"\n  next: {error.value.next}")
    assert mappings() <= before + 2


def test_a_dimension_of_zero_makes_any_other_possible() -> None:
    assert hugeleaf.empty((0, 1 << 40)).shape == (0, 1 << 40)
    assert not hugeleaf.pages(hugeleaf.empty(0)).extents


def test_strict_memory_is_whole_pages(huge: int) -> None:
    array = hugeleaf.empty(100, "u1", pages="2M", strict=True)
    assert hugeleaf.pages(array).coverage == 1
    assert hugeleaf.pages(array).nbytes == 100
    assert array.base.allocated_bytes == huge
    assert array.base.requested == "2M!"


def test_rounding_adds_at_most_an_eighth() -> None:
    for size in (1, 3 * MB, 17 * MB + 1):
        for pages in ("2M", "1G", "1G,2M"):
            allocated = hugeleaf.buffer(size, pages=pages).allocated_bytes
            assert size <= allocated <= size * 9 // 8 + os.sysconf("SC_PAGE_SIZE")


def test_strict_raises_where_a_pool_is_short() -> None:
    with pytest.raises(hugeleaf.AllocationError, match="unavailable|no page size") as error:
        hugeleaf.empty(1 << 40, "u1", pages="hugetlb:1G", strict=True)
    assert "hugeleaf" in error.value.next


def test_an_array_of_a_pool(pool: int) -> None:
    array = hugeleaf.zeros(4 * pool, "u1", pages=f"hugetlb:{pool >> 20}M", strict=True)
    pages = hugeleaf.pages(array)
    assert pages.by_page_size == {("hugetlb", pool): 4 * pool}
    assert pages.coverage == 1

    def write() -> None:
        array[7] = 5

    in_child(write)
    assert array[7] == 5, "a child shares it"
    # More than the pool has: the rest is on base pages, and says so.
    more = hugeleaf.zeros(8 * pool, "u1", pages=f"hugetlb:{pool >> 20}M")
    assert hugeleaf.pages(more).by_page_size[("hugetlb", pool)] == 4 * pool
    assert "missing" in str(hugeleaf.pages(more))


def test_a_node(huge: int) -> None:
    array = hugeleaf.full(MB, 1.0, node=0)
    assert array.sum() == MB
    assert hugeleaf.empty(3, node=[0]).shape == (3,)


def test_a_child_has_a_copy(huge: int) -> None:
    array = hugeleaf.full(4 * MB, 3, "u1")

    def write() -> None:
        assert (array == 3).all()
        array[:] = 9
        assert hugeleaf.pages(array).requested == "1G,2M"
        assert hugeleaf.full(MB, 2, "u1").sum() == 2 * MB

    in_child(write)
    assert (array == 3).all()


def test_arrays_of_many_threads_and_forks_do_not_add_up(huge: int) -> None:
    kept = hugeleaf.full(4 * MB, 1, "u1")

    def make(count: int = 250) -> None:
        for number in range(count):
            array = hugeleaf.empty(256 << 10, "u1", pages="4K" if number % 2 else "2M")
            array[::4096] = 1
        del array

    def start(count: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=make, args=(count,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        return threads

    def in_a_child() -> None:
        first = mappings()
        for _ in range(2):
            hugeleaf.empty(MB, "u1")[:] = 1
        assert kept.sum() == 4 * MB
        gc.collect()
        assert mappings() <= first + 3

    # Stacks and arenas of threads are made once.
    for thread in start(10):
        thread.join()
    gc.collect()
    memory, count = resident(), mappings()
    threads = start(250)
    for _ in range(20):
        in_child(in_a_child)
    for thread in threads:
        thread.join()
    gc.collect()
    assert resident() <= memory + 4 * MB
    assert mappings() <= count + 8


def test_other_libraries_share_its_memory(huge: int) -> None:
    array = hugeleaf.zeros((4, MB), "f4")
    view = memoryview(array)
    view[3, 5] = 2.5
    assert array[3, 5] == 2.5
    through = np.from_dlpack(array)
    assert address(through) == address(array)
    through[0, 0] = 7
    assert array[0, 0] == 7
    kept = array.ctypes.data
    del array, view
    gc.collect()
    assert through[3, 5] == 2.5
    assert hugeleaf.pages(through).requested == "1G,2M", "a view by DLPack is recognised"
    assert address(through) == kept


def test_pyarrow_shares_its_memory(huge: int) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    array = hugeleaf.zeros(4 * MB, "u1")
    buffer = pyarrow.py_buffer(array)
    assert buffer.address == address(array)
    assert hugeleaf.pages(buffer).coverage == 1
    column = pyarrow.Array.from_buffers(pyarrow.float64(), MB // 2, [None, buffer])
    array.view("f8")[3] = 1.5
    assert column[3].as_py() == 1.5
    raw = hugeleaf.buffer(2 * MB)
    assert pyarrow.py_buffer(raw).address == raw.address


def test_a_pickled_array_is_a_copy() -> None:
    array = hugeleaf.zeros((3, 5), "i4")
    array[1] = 4
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(array, protocol))
        assert_array_equal(copy, array)
        copy[0] = 9
        assert array[0].sum() == 0
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(array, 5, buffer_callback=buffers.append)
    assert_array_equal(pickle.loads(data, buffers=buffers), array)


def test_a_buffer_without_numpy() -> None:
    memory = hugeleaf.buffer(1000)
    assert (len(memory), memory.nbytes) == (1000, 1000)
    view = memoryview(memory)
    assert (view.format, view.readonly, view.ndim, view.nbytes) == ("B", False, 1, 1000)
    assert bytes(view) == bytes(1000)
    view[999] = 7
    assert bytes(memory)[-1] == 7
    assert ctypes.c_char.from_buffer(memory, 999).value == b"\7"
    assert "1000" in repr(memory)
    for length in (0, -1, 1 << 63, 1 << 80):
        with pytest.raises(hugeleaf.Error):
            hugeleaf.buffer(length)
    with pytest.raises(TypeError):
        hugeleaf.buffer(2.5)
    with pytest.raises(TypeError):
        pickle.dumps(memory)


def test_an_exception_of_a_signal_handler_ends_an_allocation(huge: int) -> None:
    class Enough(Exception):
        pass

    def raise_it(number: int, frame: object) -> None:
        raise Enough

    before = resident()
    handler = signal.signal(signal.SIGALRM, raise_it)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(Enough):
            # Base pages take longest. It may be done first: then the exception follows at once.
            for _ in range(100):
                hugeleaf.empty(512 * MB, "u1", pages="4K")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    gc.collect()
    until(lambda: resident() < before + 64 * MB)
    assert hugeleaf.zeros(MB).sum() == 0


def test_a_limit_on_addresses_is_an_error() -> None:
    code = (
        "import resource, hugeleaf\n"
        "import numpy\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try: hugeleaf.empty(3 << 30, 'u1')\n"
        "except hugeleaf.AllocationError as error: print(error)\n"
        "print(hugeleaf.zeros(10).sum())\n"
    )
    # OpenBLAS reserves addresses for each processor.
    done = run_python(code, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "cannot allocate 3G" in done.stdout and "next: " in done.stdout and "0.0" in done.stdout


def test_an_array_outlives_the_end_of_the_interpreter() -> None:
    code = "import hugeleaf; a = hugeleaf.zeros(1 << 22); h = hugeleaf.numpy_arrays(); h.__enter__()\n"
    code += "import numpy; b = numpy.ones(1 << 22)\n"
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")
