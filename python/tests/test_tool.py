"""The commands with typed results, on captured hosts, on this host, and with a program that misbehaves."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY, until

import hugeleaf
from hugeleaf import model

CAPTURED = sorted(proc.parent for proc in (REPOSITORY / "fixtures").glob("**/proc") if (proc.parent / "sys").is_dir())


@pytest.fixture(autouse=True)
def needs_program() -> None:
    try:
        hugeleaf.program()
    except hugeleaf.PreconditionError as error:
        pytest.skip(f"needs the program: {error.args[0]}")


def unknown(value: object, place: str) -> Iterator[str]:
    """Yield fields that the model lacks, and values of another type than it says."""
    if isinstance(value, model.Model):
        yield from (f"{place}.{key} is unknown" for key in value.extra)
        kinds = typing.get_type_hints(type(value))
        for name in [field.name for field in dataclasses.fields(value)]:
            inner = getattr(value, name)
            if not fits(inner, kinds[name]):
                yield f"{place}.{name} is {inner!r}, not {kinds[name]}"
            yield from unknown(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from unknown(item, f"{place}[]")


def fits(value: object, kind: typing.Any) -> bool:
    origin = typing.get_origin(kind)
    if kind is typing.Any:
        return True
    if origin is types.UnionType or origin is typing.Union:
        return any(fits(value, one) for one in typing.get_args(kind))
    if origin is list:
        return isinstance(value, list) and all(fits(item, typing.get_args(kind)[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


@pytest.mark.parametrize("host", CAPTURED, ids=lambda host: str(host.relative_to(REPOSITORY)))
def test_a_captured_host(host: Path) -> None:
    status = hugeleaf.status(root=host)
    memory = hugeleaf.mem(root=host)
    found = [*unknown(status, "status"), *unknown(memory, "mem")]
    for process in memory.processes or []:
        if (host / "proc" / str(process.pid) / "smaps").exists():
            try:
                found += unknown(hugeleaf.mem(process.pid, all=True, root=host), "mem")
                found += unknown(hugeleaf.why(process.pid, root=host), "why")
            except hugeleaf.PreconditionError as error:
                assert error.next
    assert not found


def test_an_unreadable_value_is_none_with_its_reason() -> None:
    host = hugeleaf.status(root=REPOSITORY / "fixtures" / "cut-files").host
    everywhere = [host, host.thp, *host.pools, *host.page_sizes]
    reasons = [part.unreadable for part in everywhere if part is not None and part.unreadable]
    for part in everywhere:
        for name in part.unreadable if part is not None else ():
            assert getattr(part, name) in (None, [])
    assert len(reasons) > 10 and all(reason for part in reasons for reason in part.values())


def test_this_host() -> None:
    status = hugeleaf.status()
    assert status.host.base_page_bytes == os.sysconf("SC_PAGE_SIZE")
    assert not list(unknown(status, "status"))
    assert status.findings == sorted(
        status.findings, key=lambda finding: ["problem", "warning", "note"].index(finding.severity)
    )


def test_this_process() -> None:
    memory = hugeleaf.mem(os.getpid())
    assert memory.processes is not None and memory.processes[0].pid == os.getpid()
    assert memory.processes[0].segments
    why = hugeleaf.why(os.getpid())
    assert why.processes is not None and why.processes[0].resident_bytes
    assert not [*unknown(memory, "mem"), *unknown(why, "why")]
    planned = hugeleaf.promote(os.getpid(), dry_run=True)
    assert planned.dry_run and not list(unknown(planned, "promote"))


def test_promotion_of_another_process(huge: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    hold = "import mmap, sys; m = mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.write(b'x' * (32 << 20)); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            demoted = hugeleaf.demote(process.pid, budget=1.0)
            promoted = hugeleaf.promote(process.pid, budget="100%", longest_stall=1)
            assert not [*unknown(demoted, "demote"), *unknown(promoted, "promote")]
            assert promoted.totals.done_bytes is not None
            assert promoted.totals.done_bytes >= 16 << 20
            assert promoted.processes[0].pid == process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("call", "status"),
    [
        (lambda: hugeleaf.why(4194304), 3),
        (lambda: hugeleaf.why("--help"), 3),
        (lambda: hugeleaf.why("no such name; true"), 3),
        (lambda: hugeleaf.why(""), None),
        (lambda: hugeleaf.mem(-1), None),
        (lambda: hugeleaf.status(root="/nonexistent"), 3),
        (lambda: hugeleaf.promote(os.getpid(), budget=-3), 2),
        (lambda: hugeleaf.promote(os.getpid(), budget="much"), 2),
        (lambda: hugeleaf.promote(os.getpid(), longest_stall=-1), 2),
        (lambda: hugeleaf.prove(os.getpid(), metric="bogus"), 2),
        (lambda: hugeleaf.prove(os.getpid(), metric="cmd:echo", pairs=3), 2),
    ],
)
def test_an_error_has_both_lines_of_the_program(call: typing.Callable[[], object], status: int | None) -> None:
    with pytest.raises(hugeleaf.ProgramError) as error:
        call()
    assert error.value.next and error.value.args[0]
    assert error.value.status == status or status is None
    assert isinstance(error.value, hugeleaf.PreconditionError) == (error.value.status == 3)
    assert not error.value.args[0].startswith("hugeleaf:")


def test_a_target_that_is_none_is_refused() -> None:
    for target in (1.5, None, b"x", [1]):
        with pytest.raises(TypeError):
            hugeleaf.why(target)  # type: ignore[arg-type]
    with pytest.raises(hugeleaf.InvalidRequest):
        hugeleaf.why("a\0b")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typing.Callable[[str], None]:
    """Replaces the program by a shell script."""

    def put(script: str) -> None:
        program = tmp_path / "hugeleaf"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr("hugeleaf._tool.program", lambda: str(program))

    return put


@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        ("exit 0", hugeleaf.ProgramError, "status 0 and no message"),
        ("echo '[1]'", hugeleaf.ProgramError, "no message"),
        ("echo '{\"schema\":'", hugeleaf.ProgramError, "no message"),
        ("echo '{}'", hugeleaf.Error, "lacks"),
        ("echo 'hugeleaf: it broke' >&2; exit 7", hugeleaf.ProgramError, "^it broke$"),
        ("printf 'hugeleaf: it broke\\n  next: mend it\\n' >&2; exit 3", hugeleaf.PreconditionError, "it broke\n  next: mend it"),
        ("kill -9 $$", hugeleaf.ProgramError, "ended by signal 9"),
        ("printf '\\377\\376' >&2; exit 3", hugeleaf.PreconditionError, "\ufffd"),
    ],
)
def test_a_program_that_misbehaves(fake: typing.Callable[[str], None], script: str, kind: type[Exception], text: str) -> None:
    fake(script)
    with pytest.raises(kind, match=text):
        hugeleaf.status()


def test_keys_of_a_newer_program_are_kept(fake: typing.Callable[[str], None]) -> None:
    fake("""echo '{"schema": 3, "new": [1], "findings": [], "host": {"virtual_machine": {}, "limits": {"boot": null, "boot_error": "denied", "x": 1}}}'""")
    answer = hugeleaf.status()
    assert (answer.schema, answer.extra) == (3, {"new": [1]})
    assert answer.host.limits.boot is None
    assert answer.host.limits.unreadable == {"boot": "denied"}
    assert answer.host.limits.extra == {"x": 1}
    assert answer.host.kernel is None and "kernel" not in answer.host.unreadable


def test_an_answer_fills_more_than_a_pipe(fake: typing.Callable[[str], None]) -> None:
    finding = json.dumps({"id": "x", "severity": "note", "text": "y" * 1000})
    findings = ",".join([finding] * 1000)
    fake(f"cat <<'END'\n{{\"schema\": 2, \"host\": {{\"virtual_machine\": {{}}, \"limits\": {{}}}}, \"findings\": [{findings}]}}\nEND")
    assert len(hugeleaf.status().findings) == 1000


def test_an_interrupt_ends_the_program_gently(fake: typing.Callable[[str], None], tmp_path: Path) -> None:
    """It gets one SIGTERM, and time to put memory back."""
    fake(f"trap 'echo ended >>{tmp_path}/log; exit 1' TERM INT; echo started >{tmp_path}/log; while :; do sleep 0.05; done")
    log = tmp_path / "log"

    def interrupt() -> None:
        until(lambda: log.exists() and "started" in log.read_text())
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts commands in the background with this signal ignored, and Python keeps that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            hugeleaf.status()
    finally:
        signal.signal(signal.SIGINT, before)
    # Its shell may have to end a command first.
    until(lambda: "ended" in log.read_text())
    assert log.read_text().split() == ["started", "ended"]


def test_a_program_that_cannot_be_started(fake: typing.Callable[[str], None], tmp_path: Path) -> None:
    fake("exit 0")
    (tmp_path / "hugeleaf").chmod(0o644)
    with pytest.raises(hugeleaf.PreconditionError, match="cannot be started: Permission denied"):
        hugeleaf.status()
    (tmp_path / "hugeleaf").unlink()
    with pytest.raises(hugeleaf.PreconditionError, match="cannot be started: No such file"):
        hugeleaf.status()


def test_the_program_is_part_of_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "hugeleaf", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("hugeleaf "), done.stderr
    assert done.stdout.split()[1].startswith(hugeleaf.__version__)
    assert subprocess.run([sys.executable, "-m", "hugeleaf", "bogus"], capture_output=True).returncode == 2


def test_the_model_is_generated() -> None:
    script = REPOSITORY / "python" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
