"""How fast a training step is, beside what the machine can do (`kronline bench`).

`machine.py` measures the machine, `work.py` names and builds what is timed, `baseline.py` is what a
user would write instead, `worker.py` times in processes of their own, `run.py` interleaves them,
`exact.py` looks at diagonal cells, `result.py` shows and compares what came out.
"""

from kronline.lab.bench.command import Bench, main

__all__ = ["Bench", "main"]
