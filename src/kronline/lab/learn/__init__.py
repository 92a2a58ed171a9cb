"""`kronline learn`: a model that learns from a stream of events, and survives being killed.

settings.py     what can be asked for
lines.py        lines of a file or a pipe, and places in them
parse.py        a line as a record: JSON, CSV; events.py: a record as an event, checked
model.py        the models of kronline.stream; baselines.py: what one would guess without
worker.py       one line after the other, all that follows from the lines alone
meter.py        errors, noise and drift over the stream; timing.py: how long events take
journal.py      lines in SQLite, before their predictions are shown; checkpoints.py: the rest
loop.py         the order of all this; sinks.py: where predictions go; summary.py: in numbers
"""

from kronline.lab.learn.loop import FILE, End, go, is_stream
from kronline.lab.learn.settings import Learn

__all__ = ["FILE", "End", "Learn", "go", "is_stream"]
