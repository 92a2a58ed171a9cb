"""Where predictions go: a file, which can be cut back, or a pipe, which cannot."""

import os
import sys
from pathlib import Path

from kronline.errors import UsageError


class File:
    """Lines in a file; its first `keep` bytes are known to be right."""

    again = True  # what was written behind `keep` is written again

    def __init__(self, path: Path, keep: int):
        have = path.stat().st_size if path.exists() else 0
        if have < keep:
            raise UsageError(
                f"{path} has {have:,} bytes, and this model has written {keep:,} to it; put it "
                "back, or begin anew with another folder: --model DIR"
            )
        self._file = path.open("ab")
        self._file.truncate(keep)
        self._file.seek(keep)
        self.bytes = keep

    def write(self, data: bytes) -> None:
        """One line or several."""
        self._file.write(data)
        self.bytes += len(data)

    def flush(self) -> None:
        """So that a reader sees it."""
        self._file.flush()

    def sync(self) -> None:
        """On the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Done."""
        self._file.close()


class Printed:
    """Lines on stdout."""

    again = False

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes) -> None:
        """One line or several."""
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(data.decode())

    def flush(self) -> None:
        """So that whoever reads the pipe has it."""
        sys.stdout.flush()

    sync = flush

    def close(self) -> None:
        """Nothing to do."""
