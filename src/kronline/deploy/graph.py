"""A step as a graph of few kinds of operations, which ONNX and numpy both have.

The step is traced by JAX for a batch of unknown size. What depends on the parameters alone is
computed here, once; what is left is written down in these operations:

    unary, binary   elementwise; arguments are broadcast as in numpy
    where, cast     elementwise
    sum, max, min   over axes
    matmul          of two matrices
    einsum          of two arrays, for products with axes in common
    reshape, transpose, expand, concat, slice, take
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export

BATCH = "batch"  # the name of the free size

UNARY = {
    "abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "is_finite", "log", "log1p", "logistic",
    "neg", "not", "round", "rsqrt", "sign", "sin", "sqrt", "square", "tanh",
}  # fmt: skip
BINARY = {
    "add", "and", "div", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "ne", "or", "pow",
    "sub",
}  # fmt: skip
REDUCE = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min"}
SAME = {"copy", "copy_p", "stop_gradient", "optimization_barrier", "sharding_constraint"}


class Unsupported(TypeError):
    """A step has an operation that cannot be written down."""


@dataclass(eq=False)
class Node:
    """One operation, or an input."""

    kind: str  # "input", "unary", ...
    args: tuple[Any, ...]  # nodes, and arrays that are known
    shape: tuple[Any, ...]  # whole numbers, and the batch
    dtype: np.dtype
    what: dict[str, Any] = field(default_factory=dict)


class Graph(NamedTuple):
    """A step: its inputs, its operations in order, its outputs."""

    inputs: dict[str, Node]
    nodes: list[Node]  # that the outputs need
    outputs: dict[str, Any]


def free(shape: Sequence[Any]) -> bool:
    """Whether a shape has the batch in it."""
    return not all(isinstance(d, int | np.integer) for d in shape)


def trace(step: Callable[..., Any], inputs: dict[str, Any], outputs: Sequence[str]) -> Graph:
    """A step of a batch as a graph.

    Args:
        step: of all lanes; gives as many arrays as there are names of outputs.
        inputs: the shape of one lane and the type of each argument: `((3,), "float32")`.
        outputs: their names.

    Raises:
        Unsupported: if an operation is not among those that can be written down.
    """
    (batch,) = export.symbolic_shape(BATCH)
    given = [jax.ShapeDtypeStruct((batch, *shape), dtype) for shape, dtype in inputs.values()]
    closed = jax.make_jaxpr(step)(*given)
    nodes = {n: Node("input", (), g.shape, g.dtype) for n, g in zip(inputs, given, strict=True)}
    consts = [np.asarray(c) for c in closed.consts]
    found = _walk(closed.jaxpr, consts, list(nodes.values()))
    order: dict[Node, None] = {}
    for out in found:
        _needed(out, order)
    once = _once(order)
    ops = [node for node in dict.fromkeys(once.values()) if node.kind != "input"]
    return Graph(nodes, ops, {n: once[o] for n, o in zip(outputs, found, strict=True)})


def _once(order: dict[Node, None]) -> dict[Node, Node]:
    """For each node the first that computes the same."""
    seen: dict[Any, Node] = {}
    once: dict[Node, Node] = {}
    for node in order:
        args = tuple(once[a] if isinstance(a, Node) else a for a in node.args)
        key = (node.kind, *map(id, args), str(node.shape), node.dtype, repr(node.what))
        once[node] = node if node.kind == "input" else seen.setdefault(key, node)
        if once[node] is node:
            node.args = args
    return once


def _needed(value: Any, order: dict[Node, None]) -> None:
    """A node and all that it needs, these first."""
    stack = [(value, False)]
    while stack:
        node, done = stack.pop()
        if not isinstance(node, Node) or node in order:
            continue
        if done:
            order[node] = None
        else:
            stack.append((node, True))
            stack += [(a, False) for a in reversed(node.args)]


def _walk(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env |= dict(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        return np.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else env[v]

    for eqn in jaxpr.eqns:
        outs = _equation(eqn, [read(v) for v in eqn.invars])
        env |= dict(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _equation(eqn: Any, args: list[Any]) -> list[Any]:
    """What an equation gives: known arrays, or new nodes."""
    name, params = eqn.primitive.name, eqn.params
    for inner in ("jaxpr", "call_jaxpr", "fun_jaxpr"):  # a function inside
        if inner in params:
            body = params[inner]
            closed = hasattr(body, "consts")
            return _walk(body.jaxpr if closed else body, body.consts if closed else (), args)
    shapes = [v.aval.shape for v in eqn.outvars]
    known = not any(isinstance(a, Node) for a in args)
    if known and not any(map(free, shapes)):
        out = eqn.primitive.bind(*args, **params)
        return [np.asarray(o) for o in (out if eqn.primitive.multiple_results else [out])]
    if name == "split":
        return _split(args[0], params)
    aval = eqn.outvars[0].aval
    return [_node(name, params, args, aval.shape, np.dtype(aval.dtype))]


def _node(name: str, p: dict[str, Any], args: list[Any], shape: Any, dtype: np.dtype) -> Any:
    """One equation, in the operations above."""
    made = None
    if name in SAME:
        made = args[0]
    elif name in UNARY | BINARY:
        kind = "unary" if name in UNARY else "binary"
        made = Node(kind, tuple(args), shape, dtype, {"f": name})
    elif name in REDUCE:
        axes = tuple(int(a) for a in p["axes"])
        made = Node(REDUCE[name], (args[0],), shape, dtype, {"axes": axes})
    elif name in OTHER:
        made = OTHER[name](p, args, shape, dtype)
    if made is None:
        raise Unsupported(
            f"the step has the operation {name!r}, which cannot be written as ONNX or numpy; "
            "kronline.deploy.jax_export takes any step"
        )
    return made


# -- shapes ----------------------------------------------------------------------------------------


def _shape(a: Any) -> tuple[Any, ...]:
    return a.shape


def reshape(a: Any, shape: Sequence[Any]) -> Any:
    """In another shape; known arrays at once, several times at once."""
    if isinstance(a, Node) and a.kind == "reshape":
        a = a.args[0]
    if tuple(_shape(a)) == tuple(shape):
        return a
    if isinstance(a, np.ndarray) and not free(shape):
        return a.reshape([int(d) for d in shape])
    return Node("reshape", (a,), tuple(shape), a.dtype)


def transpose(a: Any, axes: Sequence[int]) -> Any:
    """With its axes in another order; where only axes of size 1 move, a reshape."""
    axes = tuple(int(k) for k in axes)
    if isinstance(a, np.ndarray):
        return np.ascontiguousarray(a.transpose(axes))
    shape = tuple(a.shape[k] for k in axes)
    wide = [k for k in axes if free([a.shape[k]]) or a.shape[k] != 1]
    if wide == sorted(wide):
        return reshape(a, shape)
    return Node("transpose", (a,), shape, a.dtype, {"axes": axes})


def _broadcast(a: Any, places: Sequence[int], shape: Sequence[Any]) -> Any:
    """Axes of size 1 where there are none, then repeated."""
    within: list[Any] = [1] * len(shape)
    for axis, place in enumerate(places):
        within[int(place)] = _shape(a)[axis]
    a = reshape(a, within)
    if tuple(within) == tuple(shape):
        return a
    return Node("expand", (a,), tuple(shape), a.dtype)


def _slice(a: Any, start: Any, limit: Any, strides: Any, shape: Any) -> Any:
    strides = strides or [1] * len(shape)
    cuts = {}
    for axis, (lo, hi, step) in enumerate(zip(start, limit, strides, strict=True)):
        if free([lo]) or (lo == 0 and step == 1 and hi == _shape(a)[axis]):
            continue
        cuts[axis] = (int(lo), int(hi), int(step))
    if len(cuts) == 1 and isinstance(a, Node) and a.kind == "concat" and a.what["axis"] in cuts:
        ((axis, cut),), at = cuts.items(), 0
        for part in a.args:  # one of those that were put together
            size = _shape(part)[axis]
            if cut == (at, at + size, 1):
                return part
            at += size
    return Node("slice", (a,), tuple(shape), a.dtype, {"cuts": cuts}) if cuts else a


def _split(a: Any, p: dict[str, Any]) -> list[Any]:
    axis, at, parts = int(p["axis"]), 0, []
    for size in p["sizes"]:
        start, limit = [0] * len(_shape(a)), list(_shape(a))
        start[axis], limit[axis] = at, at + size
        shape = (*_shape(a)[:axis], size, *_shape(a)[axis + 1 :])
        parts.append(_slice(a, start, limit, None, shape))
        at += size
    return parts


# -- more ------------------------------------------------------------------------------------------


def _power(a: Any, y: int, shape: Any, dtype: np.dtype) -> Any:
    """`a^y` by products."""
    power = a
    for _ in range(abs(y) - 1):
        power = Node("binary", (power, a), shape, dtype, {"f": "mul"})
    if y > 0:
        return power
    return Node("binary", (np.ones((), dtype), power), shape, dtype, {"f": "div"}) if y else None


def _dot(a: Any, b: Any, numbers: Any, shape: Any, dtype: np.dtype) -> Any:
    """A product of two arrays: as one of matrices, unless they have axes in common."""
    (ca, cb), (ba, bb) = numbers
    if ba:
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        of_a = [next(letters) for _ in _shape(a)]
        of_b = [next(letters) for _ in _shape(b)]
        for i, j in (*zip(ca, cb, strict=True), *zip(ba, bb, strict=True)):
            of_b[j] = of_a[i]
        out = [of_a[i] for i in ba]
        out += [c for i, c in enumerate(of_a) if i not in (*ba, *ca)]
        out += [c for j, c in enumerate(of_b) if j not in (*bb, *cb)]
        text = f"{''.join(of_a)},{''.join(of_b)}->{''.join(out)}"
        return Node("einsum", (a, b), tuple(shape), dtype, {"text": text})
    rest_a = [i for i in range(len(_shape(a))) if i not in ca]
    rest_b = [j for j in range(len(_shape(b))) if j not in cb]
    a, b = transpose(a, (*rest_a, *ca)), transpose(b, (*cb, *rest_b))
    k = int(np.prod([_shape(b)[j] for j in range(len(cb))], dtype=int))
    rows = _product(_shape(a)[: len(rest_a)])
    columns = _product(_shape(b)[len(cb) :])
    a, b = reshape(a, (rows, k)), reshape(b, (k, columns))
    return reshape(Node("matmul", (a, b), (rows, columns), dtype), shape)


def _product(sizes: Sequence[Any]) -> Any:
    """A whole number, or the batch times one."""
    total: Any = 1
    for size in sizes:
        total = size * total if total != 1 else size
    return total


def _gather(a: Any, at: Any, numbers: Any, sizes: Any, shape: Any) -> Any:
    """Rows by their numbers, along one axis: the others are taken whole."""
    starts = [int(d) for d in numbers.start_index_map]
    single = [d for d in starts if sizes[d] == 1 and _shape(a)[d] != 1]
    if len(single) > 1 or numbers.operand_batching_dims:
        return None
    axis = single[0] if single else starts[0]
    whole = [d for d in range(len(sizes)) if d != axis]
    if any(sizes[d] != _shape(a)[d] for d in whole):
        return None
    # the numbers of this axis
    k, last = starts.index(axis), len(_shape(at)) - 1
    lead = _shape(at)[:last]
    if isinstance(at, np.ndarray):
        index: Any = at[..., k]
    else:
        start, limit = [0] * last + [k], [*lead, k + 1]
        index = reshape(_slice(at, start, limit, None, (*lead, 1)), lead)
    kept = axis not in [int(d) for d in numbers.collapsed_slice_dims]
    inner = ((1,) if kept else ()) + tuple(_shape(a)[axis + 1 :])
    taken = (*_shape(a)[:axis], *lead, *_shape(a)[axis + 1 :])
    made: Any = Node("take", (a, index), taken, a.dtype, {"axis": axis})
    if isinstance(index, np.ndarray) and np.array_equal(index, np.arange(_shape(a)[axis])):
        made = a  # all of them, in order
    made_axes = [("o", d) for d in range(axis)] + [("i", d) for d in range(last)]
    made_axes += [("o", d) for d in range(axis if kept else axis + 1, len(sizes))]
    made = reshape(made, (*_shape(a)[:axis], *lead, *inner))
    # offsets where the output has them, the numbers' own axes elsewhere
    offsets = [int(d) for d in numbers.offset_dims]
    o, i = (iter([m for m in made_axes if m[0] == which]) for which in "oi")
    wanted = [next(o) if d in offsets else next(i) for d in range(len(shape))]
    return transpose(made, [made_axes.index(w) for w in wanted])


def _clamp(args: list[Any], shape: Any, dtype: np.dtype) -> Any:
    """Low, x, high."""
    above = Node("binary", (args[1], args[0]), shape, dtype, {"f": "max"})
    return Node("binary", (above, args[2]), shape, dtype, {"f": "min"})


def _concat(args: Sequence[Any], axis: int, shape: Any, dtype: np.dtype) -> Any:
    return Node("concat", tuple(args), shape, dtype, {"axis": axis})


def _stack(p: dict[str, Any], args: Sequence[Any], shape: Any, dtype: np.dtype) -> Any:
    axis = int(p.get("axis", p.get("dimension", 0)))
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    return _concat([reshape(a, one) for a in args], axis, shape, dtype)


def _select(args: list[Any], shape: Any, dtype: np.dtype) -> Any:
    """By a flag, the first if it is not set; not by a number."""
    if len(args) != 3:
        return None
    return Node("where", (args[0], args[2], args[1]), shape, dtype)


# by JAX's names: parameters of the equation, its arguments, the shape and type of what it gives
OTHER: dict[str, Callable[[dict[str, Any], list[Any], Any, np.dtype], Any]] = {
    "integer_pow": lambda p, a, shape, dtype: _power(a[0], p["y"], shape, dtype),
    "clamp": lambda p, a, shape, dtype: _clamp(a, shape, dtype),
    "select_n": lambda p, a, shape, dtype: _select(a, shape, dtype),
    "convert_element_type": lambda p, a, shape, dtype: Node("cast", (a[0],), shape, dtype),
    "reshape": lambda p, a, shape, dtype: reshape(a[0], shape),
    "squeeze": lambda p, a, shape, dtype: reshape(a[0], shape),
    "expand_dims": lambda p, a, shape, dtype: reshape(a[0], shape),
    "transpose": lambda p, a, shape, dtype: transpose(a[0], p["permutation"]),
    "broadcast_in_dim": lambda p, a, shape, dtype: _broadcast(
        a[0], p["broadcast_dimensions"], shape
    ),
    "concatenate": lambda p, a, shape, dtype: _concat(a, int(p["dimension"]), shape, dtype),
    "stack": _stack,
    "slice": lambda p, a, shape, dtype: _slice(
        a[0], p["start_indices"], p["limit_indices"], p["strides"], shape
    ),
    "dot_general": lambda p, a, shape, dtype: _dot(
        a[0], a[1], p["dimension_numbers"], shape, dtype
    ),
    "gather": lambda p, a, shape, dtype: _gather(
        a[0], a[1], p["dimension_numbers"], p["slice_sizes"], shape
    ),
}
