"""What is measured of a run: where it stands in the metrics, and how it is shown."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Quantity:
    """One measured number, by the name that it has in metrics.jsonl.

    Args:
        key: in metrics.jsonl.
        head: above a column of the page.
        axis: beside an axis of a figure.
        digits: behind the point.
        factor: by which it is multiplied to be shown: 100 for a share in percent.
        whole: a count: shown without digits where there is a single seed.
        of_run: what counts as a run's own number: the last one that was measured, the least one, or
            the mean over the second half of the run.
        stairs: a curve keeps its value until the next one; else it is drawn from point to point.
        start: its value at step 0, where that is known without measuring.
        scale: of an axis. "count": from zero, in whole numbers. "falling": without the first steep
            fall, in which all methods look alike. "log": logarithmic. "plain": as it comes.
    """

    key: str
    head: str
    axis: str
    digits: int = 3
    factor: float = 1.0
    whole: bool = False
    of_run: Literal["last", "least", "late"] = "last"
    stairs: bool = False
    start: float | None = None
    scale: Literal["count", "falling", "log", "plain"] = "plain"

    def text(self, mean: float, std: float | None = None) -> str:
        """`12.3 ± 0.6`; without a deviation where there is a single seed."""
        if std is None and self.whole:
            return f"{self.factor * mean:g}"
        shown = f"{self.factor * mean:.{self.digits}f}"
        return shown if std is None else f"{shown} ± {self.factor * std:.{self.digits}f}"


@dataclass(frozen=True)
class Profile:
    """A list that is measured when a run has ended: values for 1, 2, 3, ...

    Args:
        key: in metrics.jsonl.
        x: what is counted, beside the horizontal axis.
        axis: beside the vertical axis.
        caption: what it shows, within the figure's caption.
        summary: the quantity that sums it up.
        factor: by which values are multiplied to be shown.
        level: a height that is marked by a line, and what it means.
        limits: of the vertical axis.
    """

    key: str
    x: str
    axis: str
    caption: str
    summary: Quantity
    factor: float
    level: tuple[float, str]
    limits: tuple[float, float]


# what `--monitor` measures of any task
SNR = Quantity("snr", "signal over noise", "signal over noise, per lane", of_run="late")
NOISE = Quantity("noise", "a step's noise", "a step's noise, of the trace", of_run="late")
MONITORED = (SNR, NOISE)
MONITORED_IN_FULL = {
    "snr": "signal over noise of the recurrent gradient, told apart by the lanes, of which each "
    "has its own data and signs (of one lane; the mean over L lanes has L times as much)",
    "noise": "the share of the trace's squared norm that is noise of the newest step alone, by the "
    "closed form (for KF-TBPTT of all steps)",
}
