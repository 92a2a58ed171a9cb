"""Where the command `kronline` starts: what can be answered without loading JAX is answered here.

Loading JAX takes a second or two. Until then Ctrl-C ends the process with one line, `--version` and
`--help` have their answer, and what is not installed is named.
"""

import difflib
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from kronline._version import __version__
from kronline.lab.about import ABOUT, CODE, COMMANDS, COMPLETION, INTERRUPTED, SHELLS

NEEDED = ("tyro", "rich", "matplotlib")  # the extra `lab`

OPTIONS = {
    "-h, --help": "show this text; after a command: its options and examples",
    "--version": "show the version",
    f"{COMPLETION} SHELL": f"print a completion script for {', '.join(SHELLS)}",
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
            sys.exit(0)
        elif words in (["--help"], ["-h"], []):
            _say(text())
            sys.exit(0)
        elif words[0] not in COMMANDS and not words[0].startswith("-"):
            near = difflib.get_close_matches(words[0], COMMANDS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            print(
                f"kronline: there is no command {words[0]!r}; {hint}`kronline --help` lists them",
                file=sys.stderr,
            )
            sys.exit(2)
        elif missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
            print(
                f"kronline: the command needs {', '.join(missing)}: pip install 'kronline[lab]'",
                file=sys.stderr,
            )
            sys.exit(2)
        elif words[0] == COMPLETION and words[1:2] not in [[shell] for shell in SHELLS]:
            got = words[1] if words[1:] else "nothing"
            print(
                f"kronline: {COMPLETION} needs one of {', '.join(SHELLS)}, got {got}",
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
