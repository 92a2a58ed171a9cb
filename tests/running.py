"""Commands for the tests of runs: in this process where that is as good, else in one of their own.

Both compile in the same way, so that their runs can be compared byte by byte.
"""

import os
import subprocess
import sys

import pytest

from kronline.cli import main

LANES = 13  # divides by no usual number of cores, so that lanes are never split over devices
SMALL = ["--hidden", "8", "--lanes", str(LANES), "--log-every", "20", "--save-every", "20"]


def command(*args):
    """The exit code of a command, run in this process."""
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in args])
    return end.value.code


def process(*args, **kwargs):
    """A process of its own."""
    env = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    words = [sys.executable, "-m", "kronline", *map(str, args)]
    return subprocess.Popen(words, env=env, **kwargs)
