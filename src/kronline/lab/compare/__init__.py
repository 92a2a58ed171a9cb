"""Estimators on equal terms: equal data, equal compute, and the noise of the same losses."""

from kronline.lab.compare.run import FILE, carry_out
from kronline.lab.compare.settings import compare_of

__all__ = ["FILE", "carry_out", "compare_of"]
