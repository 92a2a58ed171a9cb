"""Tasks: streams of inputs and targets, made inside the compiled program."""

from kronline.lab.tasks.copy import Copy, accuracies, solved_length

__all__ = ["Copy", "accuracies", "solved_length"]
