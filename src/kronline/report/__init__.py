"""Figures, tables and a page of runs, beside the paper's."""

from kronline.report.command import Plot, Report, main
from kronline.report.figures import for_run
from kronline.report.page import write

__all__ = ["Plot", "Report", "for_run", "main", "write"]
