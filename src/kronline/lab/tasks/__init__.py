"""Tasks: each is a type that says all that the laboratory needs to know of a problem."""

from kronline.lab.tasks.base import Best, Experiment, Meter, Outcome, Probe, Stream, Task, Training
from kronline.lab.tasks.registry import TASKS

__all__ = [
    "TASKS",
    "Best",
    "Experiment",
    "Meter",
    "Outcome",
    "Probe",
    "Stream",
    "Task",
    "Training",
]
