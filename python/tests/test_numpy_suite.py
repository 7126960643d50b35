"""NumPy's own tests of arrays, with each array on memory of ours, however small it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CORE = "numpy.core" if np.__version__.startswith("1.") else "numpy._core"

MODULES = ["test_multiarray", "test_indexing", "test_item_selection", "test_shape_base", "test_array_coercion", "test_dlpack"]

LEFT_OUT = "mem_policy large huge parallel_reduction test_sort test_partition test_argsort count_nonzero".split()
"""Tests that compare the allocator with NumPy's, that need gigabytes, or that make some hundred thousand arrays."""

PLUGIN = '''
import hugeleaf, pytest

@pytest.fixture(autouse=True)
def arrays_of_hugeleaf():
    with hugeleaf.numpy_arrays("2M", min_bytes=1):
        yield

def pytest_terminal_summary():
    import gc, numpy
    gc.collect()
    with hugeleaf.numpy_arrays("2M", min_bytes=1) as block:
        assert numpy.ones(1).ctypes.data % block.page_bytes == 0
'''


def test_numpys_own_tests_pass_on_arrays_of_ours(huge: int, tmp_path: Path) -> None:
    for needed in ("hypothesis", f"{CORE}.tests.test_multiarray"):
        pytest.importorskip(needed, reason=f"needs {needed}")
    (tmp_path / "on_hugeleaf.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "on_hugeleaf", "-k", " and ".join(f"not {name}" for name in LEFT_OUT)]
    command += ["--pyargs", *[f"{CORE}.tests.{module}" for module in MODULES]]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
