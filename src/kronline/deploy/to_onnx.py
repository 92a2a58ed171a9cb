"""The step as an ONNX model, written with `onnx.helper`."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronline.deploy.graph import BATCH, Graph, Node, Unsupported, free, trace
from kronline.deploy.model import Inputs, model
from kronline.disk import write
from kronline.estimators import Params
from kronline.interop.needed import needed
from kronline.learner import Learner, State

OPSET, IR = 17, 8  # old enough for most runtimes

UNARY = {
    "abs": "Abs", "ceil": "Ceil", "cos": "Cos", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "log": "Log", "logistic": "Sigmoid", "neg": "Neg", "not": "Not", "round": "Round",
    "sign": "Sign", "sin": "Sin", "sqrt": "Sqrt", "tanh": "Tanh",
}  # fmt: skip
BINARY = {
    "add": "Add", "and": "And", "div": "Div", "eq": "Equal", "ge": "GreaterOrEqual",
    "gt": "Greater", "le": "LessOrEqual", "lt": "Less", "max": "Max", "min": "Min", "mul": "Mul",
    "or": "Or", "pow": "Pow", "sub": "Sub",
}  # fmt: skip


def onnx(
    learner: Learner,
    params: State | Params,
    path: str | Path,
    *,
    inputs: Inputs = "vectors",
    names: Sequence[str] | None = None,
) -> Path:
    """Write the learnt step `(x, state) -> (y, new_state)` as ONNX; the batch may be of any size.

    Args:
        learner: any cell with a step that can be written down, and all of kronline's own can.
        params: what it learnt: its state, or `state.params`.
        path: where to; `.onnx` is the usual ending.
        inputs: "vectors", or "symbols" for whole numbers below `cell.inputs`.
        names: what the symbols are, for the file: the letters of a text.

    Returns:
        the path. What x, state and y are is in the file's metadata.

    Raises:
        ImportError: if `onnx` is not installed.
        TypeError: if the step has an operation that ONNX has not.

    Example:
        >>> import jax, onnx, optax, tempfile, kronline as kl
        >>> from kronline import deploy
        >>> learner = kl.Learner(kl.GRU(8, 3), kl.linear(2), kl.kf_rtrl(), optax.adam(1e-3))
        >>> state = learner.init(jax.random.key(0))
        >>> with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        ...     [i.name for i in onnx.load(deploy.onnx(learner, state, file.name)).graph.input]
        ['x', 'state']
    """
    library = needed("onnx", "deploy.onnx")
    made = model(learner, params, inputs, names)
    graph = trace(made.step, made.inputs, ("y", "new_state"))
    proto = Writer(library).model(graph, made.about)
    library.checker.check_model(proto)
    path = Path(path)
    write(path, proto.SerializeToString())
    return path


class Writer:
    """ONNX nodes, one operation after another."""

    def __init__(self, library: Any) -> None:
        self.onnx, self.helper = library, library.helper
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.names: dict[Any, str] = {}
        self.kept: list[np.ndarray] = []  # so that no two constants have one id
        self.count = 0

    def model(self, graph: Graph, about: dict[str, str]) -> Any:
        """The whole file."""
        for name, node in graph.inputs.items():
            self.names[node] = name
        state = graph.inputs["state"]
        self.batch = self.add("Slice", self.add("Shape", self.name(state)), *self.ints([0], [1]))
        for node in graph.nodes:
            self.names[node] = self.operation(node)
        outputs = []
        for name, node in graph.outputs.items():
            self.nodes.append(self.helper.make_node("Identity", [self.name(node)], [name]))
            outputs.append(self.told(name, node))
        inputs = [self.told(name, node) for name, node in graph.inputs.items()]
        made = self.helper.make_graph(self.nodes, "step", inputs, outputs, self.weights)
        opsets = [self.helper.make_opsetid("", OPSET)]
        proto = self.helper.make_model(made, opset_imports=opsets, ir_version=IR)
        proto.producer_name, proto.doc_string = "kronline", about["y"]
        self.helper.set_model_props(proto, about)
        return proto

    def told(self, name: str, node: Any) -> Any:
        """An input or output, with its shape."""
        shape = [BATCH if free([d]) else int(d) for d in node.shape]
        return self.helper.make_tensor_value_info(name, self.type(node.dtype), shape)

    def type(self, dtype: Any) -> int:
        """ONNX's number of a type."""
        return self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def add(self, kind: str, *args: str, **what: Any) -> str:
        """One more node, and the name of what it gives."""
        self.count += 1
        out = f"t{self.count}"
        self.nodes.append(self.helper.make_node(kind, list(args), [out], **what))
        return out

    def name(self, value: Any) -> str:
        """Of a node, or of an array, which becomes a constant of the model."""
        if isinstance(value, Node):
            return self.names[value]
        key = id(value)
        if key not in self.names:
            self.names[key] = f"w{len(self.weights)}"
            self.kept.append(value)
            self.weights.append(self.onnx.numpy_helper.from_array(value, self.names[key]))
        return self.names[key]

    def ints(self, *lists: Sequence[int]) -> list[str]:
        """Lists of whole numbers, as constants."""
        return [self.name(np.array(numbers, np.int64)) for numbers in lists]

    def shape(self, shape: Sequence[Any], given: Sequence[Any] = ()) -> str:
        """A shape, with the batch in it; where it is that of what is given, 1."""
        parts: list[Any] = [
            1 if given and d == given[k] else d if free([d]) else int(d)
            for k, d in enumerate(shape)
        ]
        if not given and sum(map(free, ([d] for d in parts))) == 1:
            parts = [-1 if free([d]) else d for d in parts]
        if not free(parts):
            return self.ints(parts)[0]
        return self.add("Concat", *(self.size(d) for d in parts), axis=0)

    def size(self, d: Any) -> str:
        """One size, as a list of one number."""
        if not free([d]):
            return self.ints([d])[0]
        found = re.fullmatch(rf"(?:(\d+)\*)?{BATCH}", str(d))
        if found is None:
            raise Unsupported(f"the step has an array of size {d}, which ONNX cannot be told of")
        return self.add("Mul", self.batch, *self.ints([int(found[1])])) if found[1] else self.batch

    def operation(self, node: Node) -> str:
        """One node of the graph, and the name of what it gives."""
        args = [self.name(a) for a in node.args]
        if node.kind == "unary":
            return self.unary(node.what["f"], args[0], node)
        if node.kind == "binary" and node.what["f"] == "ne":
            return self.add("Not", self.add("Equal", *args))
        if node.kind == "binary":
            return self.add(BINARY[node.what["f"]], *args)
        kind, constants, settings = OTHER[node.kind](self, node)
        return self.add(kind, *args, *constants, **settings)

    def unary(self, f: str, arg: str, node: Node) -> str:
        """Those that ONNX has not, by those that it has."""
        one = np.ones((), node.dtype)
        if f == "expm1":
            made = self.add("Sub", self.add("Exp", arg), self.name(one))
        elif f == "log1p":
            made = self.add("Log", self.add("Add", arg, self.name(one)))
        elif f == "rsqrt":
            made = self.add("Reciprocal", self.add("Sqrt", arg))
        elif f == "square":
            made = self.add("Mul", arg, arg)
        elif f == "is_finite":
            made = self.add("Not", self.add("Or", self.add("IsNaN", arg), self.add("IsInf", arg)))
        else:
            made = self.add(UNARY[f], arg)
        return made


def _slice(writer: Writer, node: Node) -> tuple[str, list[str], dict[str, Any]]:
    cuts = node.what["cuts"]
    starts, ends, steps = zip(*cuts.values(), strict=True)
    return "Slice", writer.ints(starts, ends, list(cuts), steps), {}


# by the graph's names: ONNX's, more inputs that are constants, and settings
OTHER: dict[str, Callable[[Writer, Node], tuple[str, list[str], dict[str, Any]]]] = {
    "where": lambda w, node: ("Where", [], {}),
    "cast": lambda w, node: ("Cast", [], {"to": w.type(node.dtype)}),
    "sum": lambda w, node: ("ReduceSum", w.ints(node.what["axes"]), {"keepdims": 0}),
    "max": lambda w, node: ("ReduceMax", [], {"axes": node.what["axes"], "keepdims": 0}),
    "min": lambda w, node: ("ReduceMin", [], {"axes": node.what["axes"], "keepdims": 0}),
    "matmul": lambda w, node: ("MatMul", [], {}),
    "einsum": lambda w, node: ("Einsum", [], {"equation": node.what["text"]}),
    "reshape": lambda w, node: ("Reshape", [w.shape(node.shape)], {}),
    "transpose": lambda w, node: ("Transpose", [], {"perm": node.what["axes"]}),
    "expand": lambda w, node: ("Expand", [w.shape(node.shape, node.args[0].shape)], {}),
    "concat": lambda w, node: ("Concat", [], {"axis": node.what["axis"]}),
    "slice": _slice,
    "take": lambda w, node: ("Gather", [], {"axis": node.what["axis"]}),
}
