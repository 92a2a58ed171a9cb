"""What the command `kronline` says of itself; nothing is loaded for it."""

import signal

INTERRUPTED = "kronline: interrupted"
CODE = 128 + signal.SIGINT

COMPLETION = "--tyro-print-completion"  # tyro writes the scripts, for
SHELLS = ("bash", "zsh", "fish")

ABOUT = """Train recurrent networks online: unbiased gradients, memory that does not grow with time.

Begin with `kronline demo`, two minutes. Each command has a --help of its own, with examples.
`kronline --tyro-print-completion bash` (or zsh, or fish) prints a script that lets the shell
complete commands and options; docs/experiments.md says where it goes."""
COMMANDS = {
    "demo": "Three ways to train an RHN, side by side, and a page of curves.",
    "learn": "Learn from a stream of events, JSON lines or CSV, and predict each; survives kills.",
    "train": "Train a network on one of the tasks: copy, text, series.",
    "resume": "Go on with a run that was stopped or killed.",
    "list": "Show the runs that there are, and how they stand.",
    "sample": "Write text with a trained language model.",
    "export": "Write what was learnt for use elsewhere: ONNX, JAX without kronline, plain numpy.",
    "sweep": "Train a grid of networks, on this machine or a cluster, and pick the best rates.",
    "compare": "Train several estimators on equal terms: equal data, equal compute, their noise.",
    "variance": "Measure how near gradient estimates come to the exact gradient.",
    "report": "Write one page with the paper's figures and tables and one's own runs in them.",
    "plot": "Draw runs into one figure.",
    "publish": "Pack runs into one small text file.",
    "verify": "Prove that cells and estimators do what they claim, by trying every noise pattern.",
    "bench": "Time a whole training step beside the machine's own matmul rate.",
    "info": "Show versions, devices, and whether the native kernel is used, and why.",
}
