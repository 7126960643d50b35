"""Huge pages for the arrays of unmodified code (NEP 49)."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Any

from . import _native
from ._arrays import require_multiarray, require_numpy
from ._errors import InvalidRequest

_BEFORE: ContextVar[tuple[Any, ...]] = ContextVar("_BEFORE", default=())
"""Allocators to return to. By context, as NumPy keeps its own: threads may share a block."""


def _table_of_functions() -> Any:
    np = require_numpy()
    if tuple(int(part) for part in np.__version__.split(".")[:2]) < (1, 22):
        raise ImportError(
            f"numpy_arrays needs NumPy 1.22, this is {np.__version__}\n  next: pip install -U numpy"
        )
    return require_multiarray()._ARRAY_API


class numpy_arrays:
    """Put the large arrays that NumPy makes in a `with` block on huge pages.

        with hugeleaf.numpy_arrays("2M"):
            table = np.zeros(1 << 27)   # and every array that libraries make here

    pages: THP sizes to try; the first one that this host has. With a `!` at the end,
        AllocationError is raised if it has none. Base pages (`4K`) forbid huge pages.
    min_bytes: smaller arrays stay with NumPy's own allocator. By default one huge page.

    Arrays made in the block keep their memory after it. Nothing is populated: memory comes with
    the first write, a huge page at a time. NumPy keeps its allocator by context (contextvars): a
    new thread begins with NumPy's own, so enter the block in the thread.
    """

    page_bytes: int | None
    """Size of the huge pages; None if this host has none of the requested ones."""

    def __init__(self, pages: str = "2M", *, min_bytes: int | None = None) -> None:
        if min_bytes is not None and min_bytes < 1:
            raise InvalidRequest(f"min_bytes is {min_bytes}", "pass at least 1")
        self._table = _table_of_functions()
        self._handler, self.page_bytes = _native.new_handler(self._table, pages, min_bytes)

    def __enter__(self) -> numpy_arrays:
        before = _native.set_handler(self._table, self._handler)
        _BEFORE.set((*_BEFORE.get(), before))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        *outer, before = _BEFORE.get()
        _BEFORE.set(tuple(outer))
        _native.set_handler(self._table, before)
