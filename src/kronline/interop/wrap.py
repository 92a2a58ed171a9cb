"""Any step of JAX or of PyTorch as a cell: `s' = step(params, s, x)`.

Nothing is known of such a cell but its derivatives. Those of a JAX step are JAX's. A PyTorch step
runs in PyTorch, outside of the compiled program (`jax.pure_callback`), and so do its derivatives:
`torch.func.vjp` for reverse mode, which the truncated methods need, and `torch.func.jvp` for
products with H, which UORO needs. All lanes go in one call (`torch.func.vmap`).
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from kronline import linearised as jac
from kronline.cells import Cell
from kronline.errors import whole_numbers
from kronline.estimators import Estimator, methods
from kronline.interop.needed import needed
from kronline.linearised import Vector

Step = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, eq=False)
class Wrapped(Cell):
    """What `wrap` gives: compared by identity, since functions and arrays are its parts."""

    step_of: Step
    start: Any  # the parameters
    numbers: int  # of the state
    inputs: int
    shown: slice | None = None

    def __post_init__(self) -> None:
        whole_numbers(self, "numbers", "inputs")

    @property
    def name(self) -> str:
        """As it is written; what it is made of cannot be."""
        step = getattr(self.step_of, "__qualname__", type(self.step_of).__name__)
        return f"wrap({step}, size={self.numbers}, inputs={self.inputs})"

    @property
    def size(self) -> int:
        """`N`, as given."""
        return self.numbers

    @property
    def outputs(self) -> int:
        """How many numbers of the state are shown."""
        return self.size if self.shown is None else len(range(self.size)[self.shown])

    def init(self, key: Key[Array, ""], dtype: Any = jnp.float32) -> Any:
        """The parameters that were given; the key is not used."""
        return jax.tree.map(lambda a: jnp.asarray(a, dtype), self.start)

    def step(self, params: Any, s: Vector, x: Any) -> Vector:
        """As given."""
        return self.step_of(params, s, x)

    def output(self, s: Vector) -> Float[Array, " h"]:
        """The numbers that are shown."""
        return s if self.shown is None else s[self.shown]


def wrap(step: Step, params: Any, *, size: int, inputs: int, shown: slice | None = None) -> Wrapped:
    """Any differentiable JAX step as a cell, for the estimators that need nothing else.

    Args:
        step: `step(params, s, x)` gives the new state, for one lane; s is a vector.
        params: a pytree of arrays: where learning starts.
        size: how many numbers the state has.
        inputs: length of an input vector, or number of symbols.
        shown: the part of the state that the readout sees; None: all of it.

    Returns:
        the cell; `estimators_for(cell)` lists what takes it.

    Example: a cell of Equinox would be `wrap(lambda p, s, x: eqx.combine(p, rest)(x, s), p, ...)`.
        >>> import jax, jax.numpy as jnp, numpy as np, optax, kronline as kl
        >>> from kronline import interop
        >>> params = {"A": 0.5 * jnp.eye(3), "B": jnp.ones((3, 2))}
        >>> cell = interop.wrap(
        ...     lambda p, s, x: jnp.sin(p["A"] @ s + p["B"] @ x), params, size=3, inputs=2
        ... )
        >>> learner = kl.Learner(cell, kl.linear(1), kl.uoro(), optax.sgd(0.1))
        >>> state = learner.init(jax.random.key(0), lanes=4)
        >>> state, out = learner.step(state, np.ones((4, 2)), np.zeros((4, 1)))
        >>> out.loss.shape
        (4,)
    """
    if not callable(step):
        raise TypeError(f"wrap needs a function step(params, s, x), got {step!r}")
    return Wrapped(step, params, size, inputs, shown)


# -- PyTorch ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WrappedTorch(Wrapped):
    """What `wrap_torch` gives: the step and its derivatives, by calls into PyTorch."""

    def step(self, params: Any, s: Vector, x: Any) -> Vector:
        """In PyTorch; reverse mode goes through it, forward mode does not."""
        return _step(self, params, s, jnp.asarray(x))

    def linearise(self, params: Any, s: Vector, x: Any) -> jac.Lin:
        """Products with H and F, each a call into PyTorch."""
        x = jnp.asarray(x)

        def push(v: Vector) -> Vector:
            return _call(self.push, s, params, s, x, v)

        def vjp(d: Vector) -> tuple[Vector, Any]:
            grads, dH, _ = _call(self.pull, (params, s, _moves(x)), params, s, x, d)
            return dH, grads

        return jac.OpaqueLin(self.step(params, s, x), push, vjp)

    def push(self, params: Any, s: Any, x: Any, v: Any) -> Any:
        """`H v`, of tensors."""
        func = needed("torch.func", "wrap_torch")
        return func.jvp(lambda s: self.step_of(params, s, x), (s,), (v,))[1]

    def pull(self, params: Any, s: Any, x: Any, d: Any) -> Any:
        """`d F`, `d H` and, where inputs are vectors, `d ∂s'/∂x`, of tensors."""
        func = needed("torch.func", "wrap_torch")
        if x.is_floating_point():
            return func.vjp(self.step_of, params, s, x)[1](d)
        return (*func.vjp(lambda p, s: self.step_of(p, s, x), params, s)[1](d), ())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _step(cell: WrappedTorch, params: Any, s: Vector, x: Any) -> Vector:
    return _call(cell.step_of, s, params, s, x)


def _forward(cell: WrappedTorch, params: Any, s: Vector, x: Any) -> Any:
    return _step(cell, params, s, x), (params, s, x)


def _backward(cell: WrappedTorch, met: Any, d: Vector) -> Any:
    params, s, x = met
    grads, dH, dx = _call(cell.pull, (params, s, _moves(x)), params, s, x, d)
    return grads, dH, np.zeros(x.shape, jax.dtypes.float0) if isinstance(dx, tuple) else dx


_step.defvjp(_forward, _backward)


def _moves(x: Any) -> Any:
    """Inputs that have a derivative: vectors, not symbols."""
    return x if jnp.issubdtype(x.dtype, jnp.floating) else ()


def _call(f: Callable[..., Any], like: Any, *args: Any) -> Any:
    """A function of tensors, called with arrays from inside of a compiled program.

    `vmap` puts axes in front of the arrays, of size 1 where an array is the same for all.
    """
    torch = needed("torch", "wrap_torch")
    flat, tree = jax.tree.flatten(args)
    axes = [jnp.ndim(a) for a in flat]
    shapes, out_tree = jax.tree.flatten(like)

    def whole(*tensors: Any) -> Any:
        return f(*jax.tree.unflatten(tree, tensors))

    def host(*given: Any) -> list[np.ndarray]:
        arrays = [_floats(np.array(a), b.dtype) for a, b in zip(given, flat, strict=True)]
        tensors = [torch.from_numpy(a) for a in arrays]
        out = _over(torch.func.vmap, whole, tensors, tensors[0].ndim - axes[0])
        leaves = zip(jax.tree.leaves(out), shapes, strict=True)
        return [_words(t.detach().numpy().astype(a.dtype)) for t, a in leaves]

    wide = [_is_wide(a) for a in shapes]
    wanted = [
        jax.ShapeDtypeStruct((*a.shape, 2), jnp.uint32)
        if w
        else jax.ShapeDtypeStruct(a.shape, a.dtype)
        for a, w in zip(shapes, wide, strict=True)
    ]
    passed = [jax.lax.bitcast_convert_type(a, jnp.uint32) if _is_wide(a) else a for a in flat]
    out = jax.pure_callback(host, wanted, *passed, vmap_method="expand_dims")
    back = [
        jax.lax.bitcast_convert_type(a, jnp.float64) if w else a
        for a, w in zip(out, wide, strict=True)
    ]
    return jax.tree.unflatten(out_tree, back)


# float64 goes to PyTorch and back as pairs of words: JAX narrows what callbacks are given and give,
# where x64 is switched on in the calling thread only (`with jax.enable_x64(True):`)


def _is_wide(a: Any) -> bool:
    return a.dtype == jnp.float64


def _floats(a: np.ndarray, dtype: Any) -> np.ndarray:
    """What was passed, as PyTorch takes it: whole numbers as int64."""
    if dtype == jnp.float64:
        return np.ascontiguousarray(a).view(np.float64)[..., 0]
    return a.astype(np.int64) if np.issubdtype(a.dtype, np.integer) else a


def _words(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a)[..., None].view(np.uint32) if _is_wide(a) else a


def _over(vmap: Any, f: Callable[..., Any], tensors: Any, axes: int) -> Any:
    """`f` over so many leading axes."""
    if not axes:
        return f(*tensors)
    same = [t.shape[0] == 1 for t in tensors]
    inner = [t[0] if one else t for t, one in zip(tensors, same, strict=True)]
    if all(same):
        return jax.tree.map(lambda t: t[None], _over(vmap, f, inner, axes - 1))
    dims = tuple(None if one else 0 for one in same)
    return vmap(lambda *ts: _over(vmap, f, ts, axes - 1), dims)(*inner)


def wrap_torch(
    step: Any,
    params: Any = None,
    *,
    size: int,
    inputs: int,
    shown: slice | None = None,
) -> WrappedTorch:
    """Any differentiable PyTorch step as a cell; it runs in PyTorch, on the CPU.

    A step of all lanes is one call from the compiled program into PyTorch, and one more for each
    derivative that the estimator asks for.

    Args:
        step: `step(params, s, x)` of tensors gives the new state, for one lane, and is such that
            `torch.func` takes it: no in-place changes, no random numbers. Or a module that is
            called as `module(x, s)` and returns the new state, such as `nn.GRUCell`.
        params: a pytree of tensors: where learning starts. None: those of the module.
        size, inputs, shown: as for `wrap`. A symbol is an int64 tensor, with which
            `torch.func` cannot index: `(x == torch.arange(inputs)).to(s.dtype)` is its one-hot
            vector.

    Returns:
        the cell; `estimators_for(cell)` lists what takes it.

    Example:
        >>> import jax, numpy as np, optax, torch, kronline as kl
        >>> from kronline import interop
        >>> cell = interop.wrap_torch(torch.nn.GRUCell(2, 3), size=3, inputs=2)
        >>> learner = kl.Learner(cell, kl.linear(1), kl.uoro(), optax.sgd(0.1))
        >>> state = learner.init(jax.random.key(0), lanes=4)
        >>> state, out = learner.step(state, np.ones((4, 2)), np.zeros((4, 1)))
        >>> out.loss.shape
        (4,)
    """
    torch = needed("torch", "wrap_torch")
    if isinstance(step, torch.nn.Module):
        module, rest = step, dict(step.named_buffers())
        params = dict(module.named_parameters()) if params is None else params

        def step(p: Any, s: Any, x: Any) -> Any:
            return torch.func.functional_call(module, p | rest, (x, s))

    if not callable(step) or params is None:
        raise TypeError(
            "wrap_torch needs step(params, s, x) and params, or a module that is called as "
            f"module(x, s), got {step!r} and params={params!r}"
        )
    start = jax.tree.map(lambda t: t.detach().cpu().numpy().copy(), params)
    return WrappedTorch(step, start, size, inputs, shown)


# -- which estimators ------------------------------------------------------------------------------


class Applies(NamedTuple):
    """What `estimators_for` gives."""

    takes: tuple[str, ...]
    refuses: dict[str, str]  # and why


def estimators_for(cell: Cell) -> Applies:
    """The estimators that take a cell, and those that do not, with their reasons.

    Args:
        cell: any cell.

    Returns:
        names of methods, `kl.uoro` for instance.

    Example:
        >>> import jax.numpy as jnp, kronline as kl
        >>> from kronline import interop
        >>> cell = interop.wrap(lambda p, s, x: jnp.tanh(p * s + x), jnp.ones(2), size=2, inputs=2)
        >>> interop.estimators_for(cell).takes
        ('artbp', 'bptt', 'dni', 'immediate', 'reservoir', 'rolling_tbptt', 'rtrl', 'tbptt', 'uoro')
        >>> print(interop.estimators_for(cell).refuses["kf_rtrl"])  # doctest: +ELLIPSIS
        Kronecker factors need a cell whose weights enter as z = feats @ W ...
    """
    takes, refuses = [], {}
    for name in methods.__all__:
        try:
            _usual(name).check(cell)
        except TypeError as e:
            refuses[name] = str(e)
        else:
            takes.append(name)
    return Applies(tuple(takes), refuses)


def _usual(name: str) -> Estimator:
    """The method with some settings."""
    given: dict[str, tuple[Any, ...]] = {
        "tbptt": (10,),
        "rolling_tbptt": (10,),
        "artbp": (0.1, 100),
        "spatial": (10,),
        "reservoir": (None,),
    }
    return getattr(methods, name)(*given.get(name, ()))
