"""Estimators on equal terms: equal data, equal compute, and the noise of the same losses."""

from kronline.lab.compare.run import main, resume
from kronline.lab.compare.settings import CopyCompare, TextCompare

__all__ = ["CopyCompare", "TextCompare", "main", "resume"]
