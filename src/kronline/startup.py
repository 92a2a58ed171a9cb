"""Ctrl-C while the command `kronline` starts: one line instead of a traceback.

Loading JAX takes a second or two, before the command's own code is reached. This module is the
first that the package loads; in any other program than the command it does nothing.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

INTERRUPTED = "kronline: interrupted"
CODE = 128 + signal.SIGINT


def is_command() -> bool:
    """Whether this process is `kronline` or `python -m kronline`."""
    program = Path(sys.argv[0]).stem if sys.argv else ""
    if program == "-m":  # as long as the package is being loaded
        after = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
        return after[:1] == ["kronline"]
    return program == "kronline"


def begin() -> None:
    """From here to `over` nothing has been done yet, so that Ctrl-C just ends the process."""
    if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def over() -> None:
    """From here on Ctrl-C is an exception, so that whatever is under way can be put in order."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(CODE)  # at once: an exception could be caught, or reported, by whatever is loading


begin()
