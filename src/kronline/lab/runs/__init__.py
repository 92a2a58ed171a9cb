"""Runs as folders: configured, trained, resumed, swept, listed."""
