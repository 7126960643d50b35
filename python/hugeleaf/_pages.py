"""Page sizes of an array, as requested and as obtained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _native
from ._arrays import require_multiarray, require_numpy
from ._errors import InvalidRequest
from ._native import size_text

_KINDS = {"base": "base pages", "thp": "THP", "hugetlb": "hugetlb pages"}


@dataclass(frozen=True)
class Extent:
    """A range of memory on pages of one size and kind."""

    address: int
    nbytes: int
    page_bytes: int
    kind: str
    """`base`, `thp` or `hugetlb`."""
    resident_bytes: int
    """Less than `nbytes` for memory that was never written, or is swapped out."""
    reason: str | None = None
    """Reason for smaller pages than requested."""
    next: str | None = None
    """Remedy: a command, or another request."""


@dataclass(frozen=True)
class Pages:
    """Page sizes of an array. str() of it is a short report."""

    requested: str | None
    """Page sizes as requested; None for memory that hugeleaf did not allocate."""
    extents: tuple[Extent, ...]
    """In order of address."""

    @property
    def nbytes(self) -> int:
        """Length of the memory, with the gaps of an array that is not contiguous."""
        return sum(extent.nbytes for extent in self.extents)

    @property
    def resident_bytes(self) -> int:
        """The part that is in memory."""
        return sum(extent.resident_bytes for extent in self.extents)

    @property
    def huge_bytes(self) -> int:
        """The part that is in memory on huge pages."""
        return sum(extent.resident_bytes for extent in self.extents if extent.kind != "base")

    @property
    def coverage(self) -> float | None:
        """Share of the resident memory on huge pages, 0 to 1; None if none is resident."""
        return self.huge_bytes / self.resident_bytes if self.resident_bytes else None

    @property
    def by_page_size(self) -> dict[tuple[str, int], int]:
        """Resident bytes by kind and page size, largest pages first."""
        sums: dict[tuple[str, int], int] = {}
        for extent in sorted(self.extents, key=lambda extent: -extent.page_bytes):
            place = (extent.kind, extent.page_bytes)
            sums[place] = sums.get(place, 0) + extent.resident_bytes
        return {place: size for place, size in sums.items() if size}

    def __str__(self) -> str:
        parts = [
            f"{size_text(size)} on {_KINDS[kind]} of {size_text(page)}"
            for (kind, page), size in self.by_page_size.items()
        ]
        missing = self.nbytes - self.resident_bytes
        if missing:
            parts.append(f"{size_text(missing)} not in memory")
        lines = [", ".join(parts) or "0 bytes"]
        if self.coverage is not None:
            # 100 % only if all of it is.
            lines[0] += f" (coverage {int(self.coverage * 1000) / 10:g} %)"
        if self.requested is not None:
            lines[0] += f", requested {self.requested}"
        small: dict[tuple[str, str | None], int] = {}
        for extent in self.extents:
            if extent.kind == "base" and extent.reason:
                cause = (extent.reason, extent.next)
                small[cause] = small.get(cause, 0) + extent.nbytes
        for (reason, next), size in small.items():
            lines += [f"  {size_text(size)}: {reason}", *([f"    next: {next}"] if next else [])]
        return "\n".join(lines)


def _range_of(array: Any) -> tuple[int, int, Any]:
    """Return address and length of an array's memory, and the NumPy array if there is one."""
    if hasattr(array, "__array_interface__") or hasattr(array, "__dlpack__"):
        np = require_numpy()
        has_interface = hasattr(array, "__array_interface__")
        view = np.asarray(array) if has_interface else np.from_dlpack(array)
        if view.size == 0:
            return 0, 0, view
        bounds = getattr(np.lib, "array_utils", np).byte_bounds
        low, high = bounds(view)
        return int(low), int(high - low), view
    try:
        address, length = _native.range_of(array)
    except (TypeError, BufferError) as error:
        raise InvalidRequest(
            f"{type(array).__name__} has no memory that can be looked up: {error}",
            "pass an array, or an object with a contiguous buffer",
        ) from error
    return address, length, None


def pages(array: Any) -> Pages:
    """Return the page sizes that an array was given and that it has now.

    Any array will do, whoever allocated it: of NumPy, of PyTorch on the CPU, an object that exports
    a buffer. The kernel's page map is read at each call, because pages can be split and collapsed
    at any time. For a view with gaps, the gaps count too.
    """
    address, length, view = _range_of(array)
    if length == 0:
        return Pages(None, ())
    requested, found = _native.extents_at(address, length)
    if requested is None and view is not None:
        requested = _requested_of_numpy(view)
    return Pages(requested, tuple(Extent(*fields) for fields in found))


def _requested_of_numpy(view: Any) -> str | None:
    """Return the page sizes that `numpy_arrays` requested: NumPy keeps the name of an array's allocator."""
    np = require_numpy()
    owner = view
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    name = require_multiarray().get_handler_name(owner) if owner.flags.owndata else None
    prefix = "hugeleaf "
    return name[len(prefix) :] if name and name.startswith(prefix) else None
