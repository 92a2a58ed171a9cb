"""Proofs by enumeration, and what they say: `verify(cell, estimator)`."""

from kronline.verifier.report import AtLeast, Check, Report
from kronline.verifier.split import split_jobs
from kronline.verifier.suite import CELLS, jobs_for, library, run, verify

__all__ = [
    "CELLS",
    "AtLeast",
    "Check",
    "Report",
    "jobs_for",
    "library",
    "run",
    "split_jobs",
    "verify",
]
