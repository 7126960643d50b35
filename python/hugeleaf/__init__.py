"""Huge pages for Python: arrays on huge pages, and hugeleaf's commands with typed results.

    import hugeleaf

    table = hugeleaf.zeros(1 << 27)       # 1 GB on huge pages
    print(hugeleaf.pages(table))          # requested and obtained, for any array
    print(hugeleaf.why(1234).summary)     # what keeps a process from huge pages

The guide: docs/guide/python.md.
"""

from __future__ import annotations

import sys as _sys

if _sys.platform != "linux":
    raise ImportError("hugeleaf runs on Linux only")

if _sys.version_info < (3, 11):
    # pip refuses the wheel. This is for a copied folder, and for PYTHONPATH.
    _version = ".".join(map(str, _sys.version_info[:3]))
    raise ImportError(
        f"hugeleaf needs Python 3.11 or newer, and this is {_version}"
        "\n  next: use a newer Python; the program hugeleaf runs without any"
    )

from ._errors import AllocationError, Error, InvalidRequest, PreconditionError, ProgramError

try:
    from ._native import Memory
except ImportError as _error:
    import platform as _platform

    if _platform.libc_ver()[0] != "glibc":
        raise ImportError(
            "this build of hugeleaf needs glibc, and this Python uses another C library, as on Alpine"
            "\n  next: use a Python image with glibc (Debian, Ubuntu, Fedora); the program hugeleaf"
            " runs with any"
        ) from _error
    raise

from ._arrays import buffer, empty, full, zeros
from ._numpy import numpy_arrays
from ._pages import Extent, Pages, pages
from ._tool import demote, mem, program, promote, prove, status, why

__version__ = "0.1.0"

__all__ = [
    "AllocationError",
    "Error",
    "Extent",
    "InvalidRequest",
    "Memory",
    "Pages",
    "PreconditionError",
    "ProgramError",
    "buffer",
    "demote",
    "empty",
    "full",
    "mem",
    "numpy_arrays",
    "pages",
    "program",
    "promote",
    "prove",
    "status",
    "why",
    "zeros",
]
