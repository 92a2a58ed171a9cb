"""The step as a Python file that needs numpy and nothing else, with its weights beside it."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronline.deploy.graph import BATCH, Graph, Node, trace
from kronline.deploy.model import Inputs, Model, model
from kronline.disk import write
from kronline.estimators import Params
from kronline.learner import Learner, State

UNARY = {
    "abs": "np.abs({})", "ceil": "np.ceil({})", "cos": "np.cos({})", "erf": "_erf({})",
    "exp": "np.exp({})", "expm1": "np.expm1({})", "floor": "np.floor({})",
    "is_finite": "np.isfinite({})", "log": "np.log({})", "log1p": "np.log1p({})",
    "logistic": "_sigmoid({})", "neg": "-{}", "not": "~{}", "round": "np.round({})",
    "rsqrt": "1 / np.sqrt({})", "sign": "np.sign({})", "sin": "np.sin({})", "sqrt": "np.sqrt({})",
    "square": "np.square({})", "tanh": "np.tanh({})",
}  # fmt: skip
BINARY = {
    "add": "{} + {}", "and": "{} & {}", "div": "{} / {}", "eq": "{} == {}", "ge": "{} >= {}",
    "gt": "{} > {}", "le": "{} <= {}", "lt": "{} < {}", "max": "np.maximum({}, {})",
    "min": "np.minimum({}, {})", "mul": "{} * {}", "ne": "{} != {}", "or": "{} | {}",
    "pow": "{} ** {}", "sub": "{} - {}",
}  # fmt: skip

HEAD = '''"""One step of a network that kronline trained: y, state = step(x, state). Needs numpy.

{about}
"""

from pathlib import Path

import numpy as np

ABOUT = {facts}
{symbols}_WEIGHTS = np.load(Path(__file__).with_suffix(".npz"), allow_pickle=False)
{weights}


{helpers}def start(batch=1):
    """The state at the start of a stream."""
    return np.zeros((batch, {size}), np.{dtype})


def step(x, state):
    """Predictions and the new state, of (batch, ...) inputs and states."""
    x, state = np.asarray(x, np.{x_dtype}), np.asarray(state, np.{dtype})
    if x.shape != (len(state){x_rest}) or state.shape[1:] != ({size},):
        needed = "x (batch{x_rest}) and state (batch, {size})"
        raise ValueError(f"needed {{needed}}, got {{x.shape}} and {{state.shape}}")
    batch = len(state)
'''
SIGMOID = """def _sigmoid(z):
    return (np.tanh(z / 2) + 1) / 2


"""
ERF = """def _erf(z):
    return np.vectorize(math.erf, otypes=[z.dtype])(z)


"""


def numpy_step(
    learner: Learner,
    params: State | Params,
    path: str | Path,
    *,
    inputs: Inputs = "vectors",
    names: Sequence[str] | None = None,
) -> Path:
    """Write the learnt step as Python that needs numpy only: `y, state = step(x, state)`.

    Two files: the program, and its weights in a `.npz` of the same name, which must lie beside it.
    No pickle is in them.

    Args:
        learner, params, inputs, names: as for `deploy.onnx`.
        path: of the program, ending in `.py`.

    Returns:
        the program's path. It has `step(x, state)`, `start(batch)` for the first state, `ABOUT`,
        and `SYMBOLS` where names are given.

    Raises:
        TypeError: if the step has an operation that is not known here.

    Example:
        >>> import jax, optax, tempfile, kronline as kl
        >>> from kronline import deploy
        >>> learner = kl.Learner(kl.GRU(8, 3), kl.linear(2), kl.kf_rtrl(), optax.adam(1e-3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     state = learner.init(jax.random.key(0))
        ...     path = deploy.numpy_step(learner, state, f"{folder}/net.py")
        ...     program = {"__file__": str(path)}
        ...     exec(path.read_text(), program)
        >>> y, state = program["step"]([[1.0, 2.0, 3.0]], program["start"]())
        >>> y.shape, state.shape
        ((1, 2), (1, 8))
    """
    path = Path(path)
    if path.suffix != ".py":
        raise ValueError(f"numpy_step writes a Python file: needed a path like net.py, got {path}")
    made = model(learner, params, inputs, names)
    text, weights = written(trace(made.step, made.inputs, ("y", "new_state")), made)
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **weights)
    write(path.with_suffix(".npz"), data.getvalue())
    write(path, text)
    return path


def written(graph: Graph, made: Model) -> tuple[str, dict[str, np.ndarray]]:
    """The program, and its weights by name."""
    names: dict[Any, str] = {node: name for name, node in graph.inputs.items()}
    weights: dict[str, np.ndarray] = {}
    kept: list[np.ndarray] = []

    def name(value: Any) -> str:
        if isinstance(value, Node):
            return names[value]
        if value.ndim == 0:
            return repr(value.item())
        if id(value) not in names:
            names[id(value)] = f"W{len(weights)}"
            weights[names[id(value)]] = value
            kept.append(value)  # so that no other has its id
        return names[id(value)]

    lines = []
    for i, node in enumerate(graph.nodes):
        text = _expression(node, [name(a) for a in node.args])
        names[node] = f"t{i}"
        lines.append(f"    t{i} = {text}")
    lines.append(f"    return {', '.join(name(out) for out in graph.outputs.values())}")
    body = "\n".join(lines)
    shape, x_dtype = made.inputs["x"]
    facts = {k: v for k, v in made.about.items() if k != "symbols"}
    symbols = made.about.get("symbols")
    helpers = SIGMOID * ("_sigmoid(" in body) + ERF * ("_erf(" in body)
    head = HEAD.format(
        about="\n".join(f"{key}: {value}" for key, value in facts.items()).replace("\\", "\\\\"),
        facts=json.dumps(facts, indent=4),
        symbols=f"SYMBOLS = {json.loads(symbols)!r}\n" if symbols else "",
        weights="\n".join(f'{w} = _WEIGHTS["{w}"]' for w in weights),
        helpers=helpers,
        size=made.size,
        dtype=made.inputs["state"][1],
        x_dtype=x_dtype,
        x_rest=f", {shape[0]}" if shape else ",",
    )
    if "_erf(" in body:
        head = head.replace("from pathlib", "import math\nfrom pathlib", 1)
    return head + body + "\n", weights


def _expression(node: Node, args: list[str]) -> str:
    if node.kind in ("unary", "binary"):
        return (UNARY if node.kind == "unary" else BINARY)[node.what["f"]].format(*args)
    return OTHER[node.kind](node, *args)


# as Python, of a node and the names of its arguments
OTHER: dict[str, Callable[..., str]] = {
    "where": lambda node, c, a, b: f"np.where({c}, {a}, {b}).astype(np.{node.dtype})",
    "cast": lambda node, a: f"np.asarray({a}).astype(np.{node.dtype})",
    "sum": lambda node, a: f"{a}.sum({node.what['axes']})",
    "max": lambda node, a: f"{a}.max({node.what['axes']})",
    "min": lambda node, a: f"{a}.min({node.what['axes']})",
    "matmul": lambda node, a, b: f"{a} @ {b}",
    "einsum": lambda node, a, b: f'np.einsum("{node.what["text"]}", {a}, {b})',
    "reshape": lambda node, a: f"np.reshape({a}, {_sizes(node.shape)})",
    "transpose": lambda node, a: f"{a}.transpose{node.what['axes']}",
    "expand": lambda node, a: f"np.broadcast_to({_typed(node, a)}, {_sizes(node.shape)})",
    "concat": lambda node, *all: f"np.concatenate([{', '.join(all)}], {node.what['axis']})",
    "slice": lambda node, a: f"{a}[{_cuts(node)}]",
    "take": lambda node, a, i: f"np.take({a}, {i}, {node.what['axis']})",
}


def _cuts(node: Node) -> str:
    """`:, 0:3`."""
    cuts = node.what["cuts"]
    return ", ".join(_cut(*cuts[k]) if k in cuts else ":" for k in range(len(node.shape)))


def _typed(node: Node, arg: str) -> str:
    """A number that is written down has a type of its own only here."""
    return arg if isinstance(node.args[0], Node) or node.args[0].ndim else f"np.{node.dtype}({arg})"


def _cut(start: int, end: int, step: int) -> str:
    return f"{start}:{end}" if step == 1 else f"{start}:{end}:{step}"


def _sizes(shape: Sequence[Any]) -> str:
    """A tuple, as Python; a size that depends on the batch is written as it is named."""
    inside = ", ".join(str(d) for d in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


assert BATCH == "batch"  # as in HEAD
