"""What came out of runs: those that belong together, their numbers, curves and labels."""
