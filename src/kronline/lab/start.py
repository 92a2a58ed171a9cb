"""Where the command `kronline` starts: what can be answered without loading JAX is answered here.

Loading JAX takes a second or two. Until then Ctrl-C ends the process with one line, `--version` and
`--help` have their answer, and what is not installed is named.
"""

import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from kronline._version import __version__

INTERRUPTED = "kronline: interrupted"
CODE = 128 + signal.SIGINT
NEEDED = ("tyro", "rich", "matplotlib")  # the extra `lab`

ABOUT = """Train recurrent networks online: unbiased gradients, memory that does not grow with time.

Begin with `kronline demo`, two minutes. Each command has a --help of its own, with examples."""
COMMANDS = {
    "demo": "Three ways to train an RHN, side by side, and a page of curves.",
    "train": "Train a network on one of the tasks: copy, text, series.",
    "resume": "Go on with a run that was stopped or killed.",
    "list": "Show the runs that there are, and how they stand.",
    "sample": "Write text with a trained language model.",
    "sweep": "Train a grid of networks over local processes, and pick the best learning rates.",
    "compare": "Train several estimators on equal terms: equal data, equal compute, their noise.",
    "variance": "Measure how near gradient estimates come to the exact gradient.",
    "report": "Write one page with the paper's figures and tables and one's own runs in them.",
    "plot": "Draw runs into one figure.",
    "publish": "Pack runs into one small text file.",
    "verify": "Prove that cells and estimators do what they claim, by trying every noise pattern.",
    "bench": "Time a whole training step beside the machine's own matmul rate.",
    "info": "Show versions, devices, and whether the native kernel is used, and why.",
}
OPTIONS = {
    "-h, --help": "show this text; after a command: its options and examples",
    "--version": "show the version",
    "--tyro-print-completion SHELL": "print a completion script for bash, zsh or tcsh",
}


def main(argv: Sequence[str] | None = None) -> None:
    """The command: answer at once, or load the laboratory and go on there."""
    words = sys.argv[1:] if argv is None else list(argv)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    try:
        if words == ["--version"]:
            _say(f"kronline {__version__}")
        elif words in (["--help"], ["-h"], []):
            _say(text())
        elif missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
            print(
                f"kronline: the command needs {', '.join(missing)}: pip install 'kronline[lab]'",
                file=sys.stderr,
            )
            sys.exit(2)
        else:
            from kronline.lab import cli  # noqa: PLC0415  takes a second or two

            # from here on Ctrl-C is an exception, so that what is under way is put in order
            if before is signal.default_int_handler:
                signal.signal(signal.SIGINT, before)
            cli.main(words)
    finally:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, before)


def text() -> str:
    """All commands, in short."""

    def rows(entries: dict[str, str], width: int) -> list[str]:
        return [f"  {name:{width}}  {line}" for name, line in entries.items()]

    return "\n".join(
        [
            "usage: kronline COMMAND [OPTIONS]",
            "",
            ABOUT,
            "",
            "commands:",
            *rows(COMMANDS, 8),
            "",
            "options:",
            *rows(OPTIONS, 29),
        ]
    )


def _say(message: str) -> None:
    try:
        print(message, flush=True)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(CODE)  # at once: an exception could be caught, or reported, by whatever is loading
