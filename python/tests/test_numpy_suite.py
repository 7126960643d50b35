"""NumPy's own tests of arrays, with each array on memory of ours, however small it is."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_numpys_own_tests_pass_on_arrays_of_ours(huge: int, tmp_path: object) -> None:
    for needed in ("hypothesis", f"{CORE}.tests.test_multiarray"):
        pytest.importorskip(needed, reason=f"needs {needed}")
    folder = os.fspath(tmp_path)  # type: ignore[call-overload]
    with open(os.path.join(folder, "on_hugeleaf.py"), "w") as plugin:
        plugin.write(PLUGIN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "on_hugeleaf", "-k", " and ".join(f"not {name}" for name in LEFT_OUT)]
    command += ["--pyargs", *[f"{CORE}.tests.{module}" for module in MODULES]]
    environment = os.environ | {"PYTHONPATH": folder}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
