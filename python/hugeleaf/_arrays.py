"""NumPy arrays on huge pages."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from ._errors import AllocationError, InvalidRequest
from ._native import Memory

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

DEFAULT_PAGES = "1G,2M"

Shape = SupportsIndex | Iterable[SupportsIndex]
Nodes = SupportsIndex | Iterable[SupportsIndex] | None


def require_numpy() -> Any:
    """Import NumPy. Only arrays need it."""
    try:
        import numpy
    except ImportError as error:
        raise ImportError(
            "hugeleaf's arrays need NumPy\n  next: pip install numpy   # or use hugeleaf.buffer()"
        ) from error
    return numpy


def require_multiarray() -> Any:
    """Import the C module of NumPy's arrays. NumPy 2 renamed its package."""
    is_first = require_numpy().__version__.startswith("1.")
    return import_module(f"numpy.{'core' if is_first else '_core'}._multiarray_umath")


def _integers(given: SupportsIndex | Iterable[SupportsIndex]) -> list[int]:
    several = [given] if isinstance(given, SupportsIndex) else given
    return [operator.index(one) for one in several]


def _node_list(node: Nodes) -> list[int] | None:
    if node is None:
        return None
    numbers = _integers(node)
    if any(one < 0 or one >= 2**32 for one in numbers):
        raise InvalidRequest(f"no node has the number {min(numbers)}", "hugeleaf status    # lists the nodes")
    return numbers


def buffer(
    nbytes: SupportsIndex,
    *,
    pages: str = DEFAULT_PAGES,
    node: Nodes = None,
    strict: bool = False,
) -> Memory:
    """Return `nbytes` of zeroed memory on huge pages, for users of the buffer protocol.

    memoryview(), PyArrow's py_buffer() and others use it without a copy. It is returned to the
    system with its last view. The arguments are those of `empty`.
    """
    length = operator.index(nbytes)
    if length <= 0:
        raise InvalidRequest(f"cannot allocate {length} bytes", "request at least one byte")
    if length > sys.maxsize:
        raise AllocationError(
            f"cannot allocate {length} bytes: more than addresses can name", "request less"
        )
    return Memory(length, pages, _node_list(node), strict)


def _dimensions(shape: Shape) -> tuple[int, ...]:
    dimensions = tuple(_integers(shape))
    if any(one < 0 for one in dimensions):
        raise InvalidRequest(
            f"a shape of {dimensions} has a negative dimension", "pass dimensions of at least 0"
        )
    return dimensions


def empty(
    shape: Shape,
    dtype: DTypeLike = float,
    *,
    pages: str = DEFAULT_PAGES,
    node: Nodes = None,
    strict: bool = False,
    order: Literal["C", "F"] = "C",
) -> NDArray[Any]:
    """Return a new array on huge pages. All of it is populated; its content is zero.

    pages: sizes to try, from large to small. `2M` means transparent huge pages, `hugetlb:2M` and
        `hugetlb:1G` pages of a pool. The rest is on base pages; `pages(array)` says how much.
    node: NUMA node of the memory, or several.
    strict: raise AllocationError instead of using any other page size. The memory is then rounded
        up to whole pages of the smallest size.
    order: `C` or `F`, as in NumPy.

    The array is returned to the system with its last view. A child process has a copy of it. On
    pages of a pool it shares the array instead, and sees each other's changes, since a copy could
    exhaust the pool and end the child. A pickled array is an ordinary one.

    Raises InvalidRequest (a ValueError) and AllocationError (a MemoryError).
    """
    np = require_numpy()
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InvalidRequest(
            f"an array of {kind} holds references to objects, not their memory",
            "use a fixed-size dtype",
        )
    if order not in ("C", "F"):
        raise InvalidRequest(f"{order!r} is no order of an array", "pass 'C' or 'F'")
    dimensions = _dimensions(shape)
    # Python's integers do not overflow.
    length = math.prod(dimensions) * kind.itemsize
    if length == 0:
        # Nothing to place. NumPy also gives dtypes without a length theirs.
        array: NDArray[Any] = np.empty(dimensions, kind, order)
    else:
        memory = buffer(length, pages=pages, node=node, strict=strict)
        array = np.ndarray(dimensions, kind, memory, order=order)
    return array


def zeros(
    shape: Shape,
    dtype: DTypeLike = float,
    *,
    pages: str = DEFAULT_PAGES,
    node: Nodes = None,
    strict: bool = False,
    order: Literal["C", "F"] = "C",
) -> NDArray[Any]:
    """Return a new array of zeroes on huge pages. The arguments are those of `empty`."""
    # New memory of the kernel is zero, and so is the value 0 of every dtype without objects.
    return empty(shape, dtype, pages=pages, node=node, strict=strict, order=order)


def full(
    shape: Shape,
    fill_value: Any,
    dtype: DTypeLike | None = None,
    *,
    pages: str = DEFAULT_PAGES,
    node: Nodes = None,
    strict: bool = False,
    order: Literal["C", "F"] = "C",
) -> NDArray[Any]:
    """Return a new array of `fill_value` on huge pages. The dtype defaults to that of the value.

    The other arguments are those of `empty`.
    """
    np = require_numpy()
    kind = np.asarray(fill_value).dtype if dtype is None else dtype
    array = empty(shape, kind, pages=pages, node=node, strict=strict, order=order)
    array[...] = fill_value
    return array
