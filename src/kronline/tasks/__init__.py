"""Tasks: streams of inputs and targets, made inside the compiled program."""

from kronline.tasks.copy import Copy, solved_length

__all__ = ["Copy", "solved_length"]
