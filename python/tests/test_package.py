"""The package: imports, types, and hosts that it cannot run on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from conftest import REPOSITORY, run_python

import hugeleaf

PACKAGE = Path(hugeleaf.__file__).parent


def test_without_numpy_everything_else_works() -> None:
    hide = "import sys; sys.modules['numpy'] = None\n"
    done = run_python(hide + "import hugeleaf; m = hugeleaf.buffer(1 << 22); print(hugeleaf.pages(m).nbytes)")
    assert done.stdout == f"{1 << 22}\n", done.stderr
    for call in ("zeros(3)", "numpy_arrays()"):
        done = run_python(hide + f"import hugeleaf; hugeleaf.{call}")
        assert "pip install numpy" in done.stderr


def test_importing_is_light() -> None:
    done = run_python("import sys, hugeleaf; print([m for m in ('numpy', 'asyncio', 'email') if m in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


NO_MODULE = """
import platform, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "hugeleaf._native":
            raise ImportError("libc.so.6: cannot open shared object file")
sys.meta_path.insert(0, Refuse())
platform.libc_ver = lambda *a, **k: ("{libc}", "")
import hugeleaf
"""


def test_on_another_c_library_the_error_says_so() -> None:
    done = run_python(NO_MODULE.replace("{libc}", ""))
    assert "hugeleaf needs glibc" in done.stderr and "next: use a Python image with glibc" in done.stderr
    done = run_python(NO_MODULE.replace("{libc}", "glibc"))
    assert "needs glibc" not in done.stderr and "cannot open shared object" in done.stderr


def test_on_another_system_the_error_says_so() -> None:
    done = run_python("import sys; sys.platform = 'darwin'; import hugeleaf")
    assert "hugeleaf runs on Linux only" in done.stderr


def test_types_are_checked(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="needs mypy")
    assert (PACKAGE / "py.typed").exists()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "-p", "hugeleaf"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout


def test_versions_agree() -> None:
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)
    assert version is not None
    assert hugeleaf.__version__ == metadata.version("hugeleaf") == version[1]


def test_everything_public_is_described() -> None:
    for name in hugeleaf.__all__:
        assert getattr(hugeleaf, name).__doc__, name


def test_the_module_is_small() -> None:
    (module,) = PACKAGE.glob("_native*.so")
    assert module.stat().st_size <= 1_000_000


def test_without_rights_arrays_still_work() -> None:
    if os.geteuid() != 0:
        pytest.skip("runs without rights anyway")
    code = (
        "import os, hugeleaf\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "m = hugeleaf.buffer(4 << 20); m_view = memoryview(m); m_view[5] = 1\n"
        "pages = hugeleaf.pages(m); print(pages)\n"
        "assert pages.nbytes == pages.resident_bytes == 4 << 20\n"
        "print(hugeleaf.pages(b'x' * 100_000).nbytes)\n"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("100000\n")
