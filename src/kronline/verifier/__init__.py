"""Proofs by enumeration that a cell and an estimator do what they claim."""

from kronline.verifier.report import Check, Report
from kronline.verifier.suite import CELLS, library, verify

__all__ = ["CELLS", "Check", "Report", "library", "verify"]
