"""Exceptions. Each one says what failed, and in `next` what to do."""

from __future__ import annotations


class Error(Exception):
    """Base of all exceptions of this package."""

    next: str
    """A command, or another request."""

    def __init__(self, message: str, next: str = "") -> None:
        super().__init__(message, next)
        self.next = next

    def __str__(self) -> str:
        return f"{self.args[0]}\n  next: {self.next}" if self.next else str(self.args[0])


class InvalidRequest(Error, ValueError):
    """The arguments make no sense on any host, or on this one."""


class AllocationError(Error, MemoryError):
    """The host cannot give this memory, or not on these page sizes."""


class ProgramError(Error):
    """The program `hugeleaf` failed. `status` is its exit status."""

    status: int

    def __init__(self, message: str, next: str = "", status: int = 1) -> None:
        super().__init__(message, next)
        self.status = status


class PreconditionError(ProgramError):
    """Something is missing: the process, a permission, a kernel that can do this."""
