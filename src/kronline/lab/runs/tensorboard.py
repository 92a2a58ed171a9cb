"""The optional TensorBoard log of a run."""

from pathlib import Path
from typing import Any

from kronline.errors import UsageError


class Board:
    """A run's metrics for TensorBoard; what came after the checkpoint is purged on resuming."""

    def __init__(self, path: Path, step: int):
        try:
            from tensorboardX import SummaryWriter  # noqa: PLC0415  an extra
        except ImportError as e:
            raise UsageError(
                "--tensorboard needs the extra: pip install 'kronline[tensorboard]'"
            ) from e
        self._writer = SummaryWriter(str(path / "tensorboard"), purge_step=step + 1)

    def write(self, line: dict[str, Any]) -> None:
        """One line of metrics."""
        for name, value in line.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, line["step"])
        self._writer.flush()

    def close(self) -> None:
        """Wait until all of it is written."""
        self._writer.close()
