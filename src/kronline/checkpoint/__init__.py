"""A learner on disk, by itself or in a run's checkpoint: safetensors, specs in the header."""

from kronline.checkpoint import parts
from kronline.checkpoint.file import FOLDER, at_step, files, read, write
from kronline.checkpoint.load import load, load_params, save

__all__ = ["FOLDER", "at_step", "files", "load", "load_params", "parts", "read", "save", "write"]
