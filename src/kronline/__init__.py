"""kronline: train recurrent networks online, with unbiased gradients and bounded memory.

>>> import jax, optax, kronline as kl
>>> learner = kl.Learner(kl.RHN(64, 4), kl.softmax(4), kl.kf_rtrl(), optax.adam(1e-3))
>>> state = learner.init(jax.random.key(0), lanes=16)
"""

from kronline._version import __version__
from kronline.cells import (
    GRU,
    LSTM,
    RHN,
    Cell,
    DeepRHN,
    Embedded,
    LeakyTanh,
    LinearCell,
    Normal,
    Opaque,
    Orthogonal,
    ResetBeforeGRU,
    Stack,
    Tanh,
    UnitCell,
    Weight,
    gate_bias,
)
from kronline.lanes import Loop, Shard, Vmap
from kronline.learner import Learner, Out, State
from kronline.methods import bptt, kf_rtrl, rtrl, tbptt, uoro
from kronline.noise import Draw
from kronline.online import Estimator, Online, Params
from kronline.readout import Readout, linear, softmax
from kronline.save import load, save
from kronline.traces import KF, UORO, Exact, Nothing, Trace
from kronline.verifier import verify

__all__ = [
    "GRU",
    "KF",
    "LSTM",
    "RHN",
    "UORO",
    "Cell",
    "DeepRHN",
    "Draw",
    "Embedded",
    "Estimator",
    "Exact",
    "LeakyTanh",
    "Learner",
    "LinearCell",
    "Loop",
    "Normal",
    "Nothing",
    "Online",
    "Opaque",
    "Orthogonal",
    "Out",
    "Params",
    "Readout",
    "ResetBeforeGRU",
    "Shard",
    "Stack",
    "State",
    "Tanh",
    "Trace",
    "UnitCell",
    "Vmap",
    "Weight",
    "__version__",
    "bptt",
    "gate_bias",
    "kf_rtrl",
    "linear",
    "load",
    "rtrl",
    "save",
    "softmax",
    "tbptt",
    "uoro",
    "verify",
]
