"""Tasks: streams of inputs and targets, made inside the compiled program."""

from kronline.tasks.copy import Copy, accuracies

__all__ = ["Copy", "accuracies"]
