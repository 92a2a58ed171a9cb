"""Tasks: streams of inputs and targets, made inside the compiled program."""

from kronline.lab.tasks.copy import Copy, accuracies

__all__ = ["Copy", "accuracies"]
