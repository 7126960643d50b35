"""Build backend (PEP 517): compiles the program hugeleaf, and has maturin build the wheel around it.

    pip wheel ./python                        with the program, as `make build` compiles it
    pip wheel ./python -C program=FILE        with this program, for example a static one
    pip wheel ./python -C program=none        without it: one megabyte instead of twenty
    pip wheel ./python -C share=FOLDER        also with manual pages and licences: share/ of the environment

`maturin build` in this folder builds the same wheel without the program. scripts/dist-wheel.sh builds the wheel of a release.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import maturin

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# maturin packs the folder of this name if it exists.
STAGED = HERE / "hugeleaf._native.data"

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
# An editable installation finds the program in PATH.
get_requires_for_build_editable = maturin.get_requires_for_build_editable
build_editable = maturin.build_editable


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    settings = dict(config_settings or {})
    program = settings.pop("program", None)
    share = settings.pop("share", None)
    if program is None:
        program = compiled_program()
    with staged(program if program != "none" else None, share):
        return str(maturin.build_wheel(wheel_directory, settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    fail("hugeleaf has no source distribution", "build the wheel in its repository: pip wheel ./python")


def compiled_program() -> str:
    if not (ROOT / "crates" / "cli" / "Cargo.toml").exists():
        fail(f"the source of the program is not in {ROOT}", "run pip wheel ./python in hugeleaf's repository")
    if shutil.which("cargo") is None:
        fail("the program is compiled with Rust, and cargo is not installed", "install Rust 1.89: https://rustup.rs")
    command = ["cargo", "build", "--release", "--locked", "--package", "hugeleaf-cli"]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        fail("the program does not compile", f"cd {ROOT} && {' '.join(command)}")
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    return str(target / "release" / "hugeleaf")


@contextmanager
def staged(program: str | None, share: str | None) -> Iterator[None]:
    """Place files where maturin packs them. Builds in the same folder wait for each other."""
    with open(HERE / "pyproject.toml") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Left by a build that was killed.
        shutil.rmtree(STAGED, ignore_errors=True)
        try:
            stage(program, share)
            yield
        finally:
            shutil.rmtree(STAGED, ignore_errors=True)


def stage(program: str | None, share: str | None) -> None:
    try:
        if program is not None:
            to = STAGED / "scripts" / "hugeleaf"
            to.parent.mkdir(parents=True)
            shutil.copyfile(program, to)
            to.chmod(0o755)
        if share is not None:
            shutil.copytree(share, STAGED / "data" / "share")
    except OSError as error:
        fail(
            f"cannot pack {program}: {error.filename or STAGED}: {error.strerror}",
            "name an existing program, and build in a folder that can be written",
        )


def fail(what: str, next: str) -> NoReturn:
    sys.exit(f"hugeleaf: {what}\n  next: {next}")
