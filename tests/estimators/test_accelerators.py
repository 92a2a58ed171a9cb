"""The training step of every method, lowered for CUDA and TPU on a machine that has neither.

`jax.export` stops where an operation has no lowering for a platform; what is left to the platform's
own libraries is a custom call, by name. Compiling and running needs the device.
"""

import re

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import export

import kronline as kl
from kronline import native, regularise
from kronline.estimators import methods

PLATFORMS = ("cuda", "tpu")
# of JAX's own for these platforms: eigh and svd of small matrices, by cuSOLVER and by XLA for TPU
KNOWN = {
    *("cusolver_syevd_ffi", "cusolver_gesvdj_ffi", "cusolver_geqrf_ffi", "cusolver_orgqr_ffi"),
    *("cublas_geqrf_batched_ffi", "cu_threefry2x32_ffi"),
    *("Eigh", "Qr", "ProductOfElementaryHouseholderReflectors"),
}
K, LANES = 4, 2
CELL = kl.Tanh(4, 3)
METHODS = {
    "bptt": (kl.bptt(), CELL),
    "tbptt": (kl.tbptt(K), CELL),
    "rolling_tbptt": (kl.rolling_tbptt(2), CELL),
    "artbp": (kl.artbp(0.5, 3), CELL),
    "rtrl": (kl.rtrl(), CELL),
    "uoro": (kl.uoro(copies=2), CELL),
    "kf_rtrl": (kl.kf_rtrl(window=1), kl.RHN(4, 3)),
    "kf_tbptt": (kl.kf_tbptt(K, pairs=2), CELL),
    "ok": (kl.ok(2), CELL),
    "reverse_kf": (kl.reverse_kf(), CELL),
    "snap": (kl.snap(1), CELL),
    "spatial": (kl.spatial(2), kl.Stack((kl.LRU(2, 3), kl.LRU(2, 4)))),
    "rflo": (kl.rflo(), kl.LeakyTanh(4, 3)),
    "immediate": (kl.immediate(), CELL),
    "dni": (kl.dni(K), CELL),
    "reservoir": (kl.reservoir(), CELL),
}


def test_no_method_is_left_out():
    assert sorted(METHODS) == sorted(methods.__all__)


def lowered(fn, *args):
    """A program for these platforms, as text, and the custom calls in it."""
    made = export.export(jax.jit(fn), platforms=PLATFORMS)(*args)
    assert made.platforms == PLATFORMS
    text = made.mlir_module()
    return text, set(re.findall(r"custom_call @(\w+)", text))


def step(learner):
    """Start and K steps with their updates; what the start is made of, and data."""
    x = jax.ShapeDtypeStruct((K, LANES), jnp.int32)

    def train(key, x, y):
        state, out = learner.run(learner.init(key, LANES), x, y)
        return state.params, out.loss

    return train, jax.eval_shape(lambda: jax.random.key(0)), x, x


@pytest.mark.parametrize("name", METHODS)
def test_every_method_lowers(name):
    estimator, cell = METHODS[name]
    learner = kl.Learner(cell, kl.softmax(3), estimator, optax.adam(1e-3))
    with native.use(False):
        text, calls = lowered(*step(learner))
    assert "stablehlo.dot_general" in text  # there is a training step in it
    assert calls <= KNOWN


def test_the_native_kernel_stays_on_the_cpu():
    """A program that has the kernel in it for the CPU has the pure-JAX path for others."""
    learner = kl.Learner(kl.RHN(4, 3), kl.softmax(3), kl.kf_rtrl(), optax.adam(1e-3))
    train, *given = step(learner)
    _, calls = lowered(train, *given)
    assert calls <= KNOWN
    if native.status().active:  # and the test would see it
        on_cpu = export.export(
            jax.jit(train),
            platforms=["cpu"],
            disabled_checks=[export.DisabledSafetyCheck.custom_call("kronline_merge_pair")],
        )
        assert "kronline" in on_cpu(*given).mlir_module()


def test_a_limit_of_the_largest_singular_value_lowers():
    learner = kl.Learner(
        CELL,
        kl.softmax(3),
        kl.kf_rtrl(),
        optax.adam(1e-3),
        regularisers=(regularise.spectral(1.0),),
    )
    with native.use(False):
        _, calls = lowered(*step(learner))
    assert calls <= KNOWN
