"""The Python code of the guide runs, top to bottom, in one interpreter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guide" / "python.md"


def test_the_code_of_the_guide_runs(huge: int, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
