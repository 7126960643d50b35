"""Runs the program hugeleaf: `python -m hugeleaf`."""

import os
import sys

from ._errors import Error
from ._tool import program

try:
    path = program()
    os.execv(path, [path, *sys.argv[1:]])
except Error as error:
    sys.exit(f"hugeleaf: {error}")
