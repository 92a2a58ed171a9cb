"""The laboratory: tasks, runs, measurements and reports, on top of the library."""
