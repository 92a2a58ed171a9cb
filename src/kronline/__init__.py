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
from kronline.methods import (
    artbp,
    bptt,
    kf_rtrl,
    reverse_kf,
    rolling_tbptt,
    rtrl,
    tbptt,
    uoro,
)
from kronline.noise import Draw
from kronline.online import Estimator, Online, Params
from kronline.readout import Readout, linear, softmax
from kronline.rolling import Rolling
from kronline.save import load, save
from kronline.traces import KF, UORO, Average, Exact, Nothing, ReverseKF, Trace
from kronline.verifier import verify

__all__ = [
    "GRU",
    "KF",
    "LSTM",
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
    "gate_bias",
    "kf_rtrl",
    "linear",
    "load",
    "reverse_kf",
    "rolling_tbptt",
    "rtrl",
    "save",
    "softmax",
    "tbptt",
    "uoro",
    "verify",
]
