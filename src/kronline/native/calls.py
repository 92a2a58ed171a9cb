"""The kernel's products as JAX functions of one lane; `vmap` hands all lanes to one call."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float


def merge_pair(
    W: Float[Array, "b n r n"] | Float[Array, "R r B K"],
    D: Float[Array, "q r n"],
    E: Float[Array, "q q n"],
    reads: tuple[int, ...],
    feats: Float[Array, " m"],
    delta: Float[Array, " N"],
    c: Float[Array, ""],
    u: Float[Array, " m"],
    A: Float[Array, "N r n"],
    norm: Float[Array, ""],
    *,
    before: bool,
    offsets: tuple[int, ...] = (),
) -> tuple[Array, Array, Array, Array]:
    """KF-RTRL's `merge_pair` (`traces/kf.py`) in one pass over A, in place.

    Args:
        W, D, E, reads: H of the step; W as `BlockH` has it where there are offsets.
        feats: ĥ.
        delta: δ.
        c: the sign.
        u, A, norm: the pair.
        before: return δ·HA of the old pair, not δ·A of the new one.
        offsets: of `BlockH`; none: all units read all.

    Returns:
        the new u, A and ‖A‖; and δ·A.
    """
    r, n = D.shape[-2:]
    size = W.shape[-2] if offsets else n
    how = {"offsets": np.array(offsets, np.int64), "size": np.int64(size), "before": before}

    def call(W: Array, *lanes: Array) -> Any:
        u, A, norm = lanes[-3:]
        dA = jax.ShapeDtypeStruct((*norm.shape, r, n), A.dtype)
        out = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (u, A, norm)]
        aliases = {6: 0, 7: 1, 8: 2}
        f = jax.ffi.ffi_call("kronline_merge_pair", [*out, dA], input_output_aliases=aliases)
        return tuple(f(W, *lanes, reads=np.array(reads, np.int64), **how))

    W = W.reshape(-1, *W.shape[2:]) if offsets else W.reshape(-1, r, n)
    return _over_lanes(call)(W, D, E, feats, delta, c, u, A, norm)


def rmm(
    W: Float[Array, "b n r n"],
    D: Float[Array, "q r n"],
    E: Float[Array, "q q n"],
    reads: tuple[int, ...],
    P: Float[Array, "p N"],
) -> Float[Array, "p N"]:
    """`P H`, in place."""
    _, r, n = D.shape

    def call(WT: Array, *lanes: Array) -> Any:
        out = jax.ShapeDtypeStruct(lanes[-1].shape, WT.dtype)
        f = jax.ffi.ffi_call("kronline_rmm", out, input_output_aliases={3: 0})
        return f(WT, *lanes, reads=np.array(reads, np.int64))

    WT = jnp.moveaxis(W.reshape(-1, r, n), 0, -1)
    return _over_lanes(call)(WT, D, E, P)


class Merged(NamedTuple):
    """What comes out of `merge_segment`."""

    A: Float[Array, "N p r n"]
    U: Float[Array, "p m"]
    info: Float[Array, "3"]  # what the merge adds to the variance; ‖G'‖² before and after it
    dA: Float[Array, "p r n"]


def merge_segment(
    W: Float[Array, "b n r n"],
    D: Float[Array, "k q r n"],
    E: Float[Array, "k q q n"],
    reads: tuple[int, ...],
    resets: Float[Array, " k"],
    signs: Float[Array, " k+p-1"],
    delta: Float[Array, " N"],
    U: Float[Array, "k+p m"],
    A: Float[Array, "N p r n"],
    *,
    sample: int,
    start: bool,
) -> Merged:
    """The merge of a segment (`traces/segment_merge.py`), A in place.

    KF-TBPTT calls it for segments of k steps, OK for segments of one.

    Args:
        W, D, E, reads: H of every step.
        resets: not 0 where there is one.
        signs: of all terms but the first.
        delta: δ, for δ·A.
        U: the left factors of the k new terms and of the p old pairs.
        A: the right factors of the old pairs.
        sample: how many rows of the right factors are compared, to choose the mix.
        start: δ·A of the old A, not of the new one.
    """
    r, n = D.shape[-2:]
    settings = {"reads": np.array(reads, np.int64), "sample": np.int64(sample), "start": start}

    def call(WT: Array, *lanes: Array) -> Any:
        U, A = lanes[-2:]
        N, p = A.shape[-4:-2]
        shapes = [(N, p, r, n), (p, U.shape[-1]), (3,), (p, r, n)]
        out = [jax.ShapeDtypeStruct((*A.shape[:-4], *shape), A.dtype) for shape in shapes]
        f = jax.ffi.ffi_call("kronline_merge_segment", out, input_output_aliases={7: 0})
        return tuple(f(WT, *lanes, **settings))

    WT = jnp.moveaxis(W.reshape(-1, r, n), 0, -1)
    return Merged(*_over_lanes(call)(WT, D, E, resets, signs, delta, U, A))


def mix(
    Gu: Float[Array, "K K"], Gb: Float[Array, "K K"], signs: Float[Array, " K-1"], pairs: int
) -> tuple[Float[Array, "K r"], Float[Array, "K r"], Float[Array, ""]]:
    """How K products become r: `balanced` of `traces/mixing.py`.

    Args:
        Gu, Gb: the Gram matrices of the left and of the right factors.
        signs: of all terms but the first.
        pairs: r.

    Returns:
        what left and right factors are multiplied with, and the variance.
    """

    def call(*lanes: Array) -> Any:
        *before, K, _ = lanes[0].shape
        shapes = ((*before, K, pairs), (*before, K, pairs), tuple(before))
        out = [jax.ShapeDtypeStruct(shape, lanes[0].dtype) for shape in shapes]
        return tuple(jax.ffi.ffi_call("kronline_mix", out)(*lanes, pairs=np.int64(pairs)))

    return _over_lanes(call, shares=False)(Gu, Gb, signs)


MOST_SLOTS = 4  # of a unit, that `push_traces` takes


def push_traces(
    feats: Float[Array, "k m"],
    SD: Float[Array, "k c g n"],
    S: Float[Array, "c c n"],
    cut: Float[Array, ""],
    delta: Float[Array, "c n"],
    e: Float[Array, "m c g n"],
) -> tuple[Float[Array, "m c g n"], Float[Array, "m g n"]]:
    """The traces of one weight over a segment (`traces/in_layer.py`) in one pass over e, in place.

    Args:
        feats: ĥ of every step.
        SD, S: what the steps add, and what they leave of e.
        cut: not 0 where a reset cuts the past.
        delta: δ.
        e: the traces; at most `MOST_SLOTS` slots.

    Returns:
        the new e, and δ·e of the old one.
    """

    def call(e: Array, *lanes: Array) -> Any:
        *before, m, _, g, n = e.shape
        read = jax.ShapeDtypeStruct((*before, m, g, n), e.dtype)
        out = [jax.ShapeDtypeStruct(e.shape, e.dtype), read]
        f = jax.ffi.ffi_call("kronline_push_traces", out, input_output_aliases={5: 0})
        return tuple(f(*lanes, e))

    return _over_lanes(call, shares=False)(e, feats, SD, S, cut, delta)


def push_traces_added(
    feats: Float[Array, "k m"],
    SD: Float[Array, "k c g n"],
    S: Float[Array, "c c n"],
    cut: Float[Array, ""],
    delta: Float[Array, "c n"],
    e: Float[Array, "m c g n"],
) -> tuple[Float[Array, "m c g n"], Float[Array, "m g n"], Float[Array, ""]]:
    """`push_traces`, with δ·e added up over the lanes of the innermost `vmap`.

    Args:
        feats, SD, S, cut, delta, e: as there.

    Returns:
        the new e; the sum over lanes, one for all of them; and of each lane 0, or NaN where its
        own δ·e is not finite.
    """

    @custom_vmap
    def lanes(e: Array, *given: Array) -> Any:
        count, m, _, g, n = e.shape
        shapes = (e.shape, (m, g, n), (count,))
        out = [jax.ShapeDtypeStruct(shape, e.dtype) for shape in shapes]
        aliases = {5: 0}
        f = jax.ffi.ffi_call("kronline_push_traces_added", out, input_output_aliases=aliases)
        return tuple(f(*given, e))

    @lanes.def_vmap
    def many(size: int, batched: Any, *args: Array) -> Any:
        out = jax.lax.map(lambda a: lanes(*a), _spread(size, batched, args))
        return out, (True, True, True)

    @custom_vmap
    def run(e: Array, *given: Array) -> Any:
        new, read, odd = lanes(*(a[None] for a in (e, *given)))
        return new[0], read, odd[0]

    @run.def_vmap
    def rule(size: int, batched: Any, *args: Array) -> Any:
        return lanes(*_spread(size, batched, args)), (True, False, True)

    found: tuple[Array, Array, Array] = run(e, feats, SD, S, cut, delta)
    return found


def _spread(size: int, batched: Any, args: tuple[Array, ...]) -> tuple[Array, ...]:
    pairs = zip(args, batched, strict=True)
    return tuple(a if yes else jnp.broadcast_to(a, (size, *a.shape)) for a, yes in pairs)


def _over_lanes(call: Callable[..., Any], *, shares: bool = True) -> Callable[..., Any]:
    """`call(W, *lanes)` with a rule for `vmap`: W is passed once where all lanes share it."""

    @custom_vmap
    def run(W: Array, *lanes: Array) -> Any:
        return call(W, *lanes)

    @run.def_vmap
    def rule(size: int, batched: Any, W: Array, *lanes: Array) -> Any:
        shared = shares and all(d == 1 for d in W.shape[:-3])
        (W,) = (W[None],) if shared and not batched[0] else _spread(size, batched[:1], (W,))
        out = run(W, *_spread(size, batched[1:], lanes))
        return out, jax.tree.map(lambda _: True, out)

    return run
