"""A thing by its spec: the text that it is written as, wherever it is named.

`RHN(64, 50)`, `Stack((RHN(64, 50), LSTM(64, 64)))`, `LowRank(RHN(256, 50), 16)`, `softmax(50)`,
`kf_tbptt(25, pairs=8)`, `Online(UORO(2), window=3)`, `Vmap()`, `row_norm(1.0)`. `parse` makes the
thing of a text, `show` the text of a thing: `parse(show(x), kind) == x` for all that the library
has. A text is only taken apart, never run, and nothing is imported for it; `given`, for what a user
has typed, also takes `path/to/file.py:NAME(arguments)` and `package.module:NAME`.

On a command line a cell's sizes are not written, but come from elsewhere: `Stack(RHN, LSTM)`.
"""

from kronline.show import show
from kronline.spec.known import KINDS
from kronline.spec.parse import canonical, given, parse, split

__all__ = ["KINDS", "canonical", "given", "parse", "show", "split"]
