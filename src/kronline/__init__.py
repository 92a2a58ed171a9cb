"""kronline: train recurrent networks online, with unbiased gradients and bounded memory.

>>> import jax, optax, kronline as kl
>>> learner = kl.Learner(kl.RHN(64, 4), kl.softmax(4), kl.kf_rtrl(), optax.adam(1e-3))
>>> state = learner.init(jax.random.key(0), lanes=16)
"""

from kronline._version import __version__
from kronline.cells import (
    GRU,
    LIF,
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
    Spectral,
    Stack,
    Tanh,
    UnitCell,
    Weight,
    gate_bias,
)
from kronline.lanes import Loop, Shard, Vmap
from kronline.learner import Learner, Out, State
from kronline.methods import (
    artbp,
    bptt,
    dni,
    immediate,
    kf_rtrl,
    reservoir,
    reverse_kf,
    rflo,
    rolling_tbptt,
    rtrl,
    snap,
    tbptt,
    uoro,
)
from kronline.noise import Draw
from kronline.online import Estimator, Online, Params
from kronline.readout import Readout, linear, softmax
from kronline.rolling import Rolling
from kronline.save import load, save
from kronline.traces import KF, RFLO, UORO, Average, Exact, Nothing, ReverseKF, SnAp, Trace
from kronline.verifier import verify

__all__ = [
    "GRU",
    "KF",
    "LIF",
    "LSTM",
    "RFLO",
    "RHN",
    "UORO",
    "Average",
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
    "ReverseKF",
    "Rolling",
    "Shard",
    "SnAp",
    "Spectral",
    "Stack",
    "State",
    "Tanh",
    "Trace",
    "UnitCell",
    "Vmap",
    "Weight",
    "__version__",
    "artbp",
    "bptt",
    "dni",
    "gate_bias",
    "immediate",
    "kf_rtrl",
    "linear",
    "load",
    "reservoir",
    "reverse_kf",
    "rflo",
    "rolling_tbptt",
    "rtrl",
    "save",
    "snap",
    "softmax",
    "tbptt",
    "uoro",
    "verify",
]
