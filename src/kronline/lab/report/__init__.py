"""Figures, tables and a page of runs, beside the paper's."""
