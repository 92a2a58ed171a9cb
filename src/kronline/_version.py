"""The version of kronline."""

__version__ = "0.1.0"
