"""The directive `command-line`: every command's own --help, asked for when the site is built."""

import json
import os
import subprocess
import sys
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

WIDTH = "90"
ASK = """
import contextlib, io, json
from kronline.lab import cli, start

verbs = [[verb, kind] for verb, (_, kinds, _) in cli.VERBS.items() for kind in kinds]
made = []
for words in [[], *verbs, *([name] for name in cli.PLAIN)]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        start.main([*words, "--help"])
    made.append((words, text.getvalue()))
print(json.dumps(made))
"""


def helps() -> list[tuple[list[str], str]]:
    """Every command's words, and what it prints when it is asked for help."""
    env = {**os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    made = json.loads(done.stdout)
    empty = [words for words, text in made if "usage" not in text.lower()]
    if empty:
        raise RuntimeError(f"no help for {empty}")
    return [(words, text) for words, text in made]


class CommandLine(Directive):
    """A section for every command."""

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        made: list[nodes.Node] = []
        for words, text in helps():
            name = " ".join(("kronline", *words))
            section = nodes.section(ids=[nodes.make_id(name)], names=[name.lower()])
            section += nodes.title(name, "", nodes.literal(name, name))
            section += nodes.literal_block(text, text, language="text", classes=["help"])
            self.state.document.note_explicit_target(section)
            made.append(section)
        return made


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
