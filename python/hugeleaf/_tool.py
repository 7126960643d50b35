"""hugeleaf's commands, with typed results. They run the program of the same wheel."""

from __future__ import annotations

import json
import operator
import os
import shutil
import subprocess
import threading
from typing import Any, SupportsIndex

from . import model
from ._errors import InvalidRequest, PreconditionError, ProgramError

Target = SupportsIndex | str
"""A PID, or as on the command line: a name, a systemd unit, a cgroup path, `tree:PID`."""

Share = float | str
"""From 0 to 1, or as on the command line: `10%`."""

Time = float | str
"""Seconds, or as on the command line: `500ms`."""


def program() -> str:
    """Return the path of the program: that of this wheel, or else the one in PATH."""
    # It takes longer to import than the rest of this package.
    from importlib import metadata

    try:
        files = metadata.files("hugeleaf") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "hugeleaf" and file.parent.name in ("bin", "scripts"):
            path = os.path.abspath(file.locate())
            if os.access(path, os.X_OK):
                return path
    found = shutil.which("hugeleaf")
    if found is None:
        raise PreconditionError(
            "the program hugeleaf is not installed",
            "install the wheel with the program, or put hugeleaf into PATH",
            3,
        )
    return found


def _words(targets: tuple[Target, ...]) -> list[str]:
    words = [target if isinstance(target, str) else str(operator.index(target)) for target in targets]
    if any("\0" in word for word in words):
        raise InvalidRequest("a target contains a null character", "pass a PID or a name")
    # A name that begins with a dash is no flag.
    return ["--", *words]


def _flags(**flags: Any) -> list[str]:
    """Return flags of the command line. A flag of None or False is left out."""
    words = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return words


def _percent(share: Share | None) -> str | None:
    return share if share is None or isinstance(share, str) else f"{share * 100:.10g}%"


def _time(time: Time | None) -> str | None:
    return time if time is None or isinstance(time, str) else f"{time:.10g}s"


class _Starter(threading.Thread):
    """Starts a program and keeps its process, even if a signal handler raises meanwhile.

    An exception of a signal handler can hit the main thread after the program has started and
    before the thread knows its PID. It never hits another thread.
    """

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(daemon=True)
        self.arguments = arguments
        self.child: subprocess.Popen[str] | None = None
        self.error: str | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            # Ctrl-C would reach the program a second time, from the terminal, and then end it at
            # once. In a process group of its own it has one signal, after which it restores memory.
            self.child = subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                process_group=0,
            )
        except OSError as error:
            self.error = error.strerror
        finally:
            self.done.set()


def _answer(command: str, flags: list[str], words: list[str]) -> dict[str, Any]:
    path = program()
    starter = _Starter([path, command, "--json", *flags, *words])
    try:
        starter.start()
        starter.done.wait()
        if starter.child is None:
            raise PreconditionError(
                f"{path} cannot be started: {starter.error}",
                "reinstall it: pip install --force-reinstall hugeleaf",
                3,
            )
        # Not in a with block, which would wait for the program before it is told to end.
        child = starter.child
        out, err = child.communicate()
    except BaseException:
        starter.done.wait(5)
        if starter.child is not None:
            _end(starter.child)
        raise
    # A result that is negative or incomplete has status 1.
    if child.returncode in (0, 1):
        try:
            answer = json.loads(out)
            if isinstance(answer, dict):
                return answer
        except ValueError:
            pass
    raise _failure(command, child.returncode, err)


def _end(child: subprocess.Popen[str]) -> None:
    """End a program gently, or at once at the second exception."""
    child.terminate()
    try:
        child.wait(timeout=15)
    except BaseException:
        child.kill()
        child.wait()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _failure(command: str, status: int, err: str) -> ProgramError:
    message, _, next = err.strip().partition("\n  next: ")
    message = message.removeprefix("hugeleaf: ").removeprefix("error: ")
    if status < 0:
        message = f"hugeleaf {command} was ended by signal {-status}"
    elif not message:
        message = f"hugeleaf {command} ended with status {status} and no message"
    kind = PreconditionError if status == 3 else ProgramError
    return kind(message, next.strip(), status)


def status(*, root: str | os.PathLike[str] | None = None) -> model.Status:
    """Return page sizes, pools, settings and findings of this host, or of one captured in `root`."""
    return model.Status.from_json(_answer("status", _flags(root=root), []))


def mem(
    *targets: Target, all: bool = False, root: str | os.PathLike[str] | None = None
) -> model.Mem:
    """Return memory by page size: of each process, or of each mapping of the targets."""
    return model.Mem.from_json(_answer("mem", _flags(all=all, root=root), _words(targets)))


def why(
    target: Target, *more: Target, all: bool = False, root: str | os.PathLike[str] | None = None
) -> model.Why:
    """Return why memory of the targets is not on huge pages, with the command that changes it."""
    answer = _answer("why", _flags(all=all, root=root), _words((target, *more)))
    return model.Why.from_json(answer)


def promote(
    target: Target,
    *more: Target,
    budget: Share | None = None,
    longest_stall: Time | None = None,
    min_resident: Share | None = None,
    switch_thp_on: bool = False,
    at_least: Share | None = None,
    all: bool = False,
    dry_run: bool = False,
) -> model.Promotion:
    """Promote the memory of running processes to huge pages, this one's (`os.getpid()`) too.

    The arguments are the flags of `hugeleaf promote`. `complete` of the result is False if part of
    the memory was refused or busy. With `at_least`, `reached` says whether that share of the eligible
    memory is on huge pages. Needs root, or CAP_SYS_PTRACE and CAP_SYS_NICE.
    """
    flags = _flags(
        budget=_percent(budget),
        longest_stall=_time(longest_stall),
        min_resident=_percent(min_resident),
        switch_thp_on=switch_thp_on,
        at_least=_percent(at_least),
        all=all,
        dry_run=dry_run,
    )
    return model.Promotion.from_json(_answer("promote", flags, _words((target, *more))))


def demote(
    target: Target,
    *more: Target,
    budget: Share | None = None,
    longest_stall: Time | None = None,
    all: bool = False,
    dry_run: bool = False,
) -> model.Promotion:
    """Demote the memory of running processes to base pages, which undoes `promote`."""
    flags = _flags(
        budget=_percent(budget), longest_stall=_time(longest_stall), all=all, dry_run=dry_run
    )
    return model.Promotion.from_json(_answer("demote", flags, _words((target, *more))))


def prove(
    target: Target,
    *more: Target,
    metric: str,
    pairs: int | None = None,
    until: Share | None = None,
    for_: Time | None = None,
    interval: Time | None = None,
    settle: Time | None = None,
    hold: Time | None = None,
    equal: Share | None = None,
    confidence: Share | None = None,
    keep: str | None = None,
    before_after: bool = False,
    same_pages: bool = False,
    intention_to_treat: bool = False,
    seed: int | None = None,
    budget: Share | None = None,
    longest_stall: Time | None = None,
    output: str | os.PathLike[str] | None = None,
    html: str | os.PathLike[str] | None = None,
) -> model.Proof:
    """Measure the effect of huge pages on running processes, in pairs of base and huge pages.

    metric: measurement, for example `redis:localhost:6379` or `cmd:cat /run/app/requests`.

    The other arguments are the flags of `hugeleaf prove`. It takes minutes. The result has the
    `verdict` (`faster`, `slower`, `same`, `unclear`) and the `effect` with its interval. Memory is
    left as it was unless `keep="if-faster"`.
    """
    flags = _flags(
        metric=metric,
        pairs=pairs,
        until=_percent(until),
        for_=_time(for_),
        interval=_time(interval),
        settle=_time(settle),
        hold=_time(hold),
        equal=_percent(equal),
        confidence=_percent(confidence),
        keep=keep,
        before_after=before_after,
        same_pages=same_pages,
        intention_to_treat=intention_to_treat,
        seed=seed,
        budget=_percent(budget),
        longest_stall=_time(longest_stall),
        output=output,
        html=html,
    )
    return model.Proof.from_json(_answer("prove", flags, _words((target, *more))))
