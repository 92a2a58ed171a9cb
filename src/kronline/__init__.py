"""kronline: train recurrent networks online, with unbiased gradients and bounded memory.

>>> import jax, optax, kronline as kl
>>> learner = kl.Learner(kl.RHN(64, 4), kl.softmax(4), kl.kf_rtrl(), optax.adam(1e-3))
>>> state = learner.init(jax.random.key(0), lanes=16)
"""

from kronline import startup as startup  # before all others, which take a second to load

# isort: split
from kronline import regularise
from kronline._version import __version__
from kronline.cells import (
    GRU,
    LIF,
    LSTM,
    RHN,
    Blocks,
    Cell,
    DeepRHN,
    Embedded,
    LeakyTanh,
    LinearCell,
    LowRank,
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
    kf_tbptt,
    ok,
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
from kronline.traces import (
    KF,
    OK,
    RFLO,
    UORO,
    Average,
    Exact,
    Nothing,
    ReverseKF,
    SnAp,
    Tail,
    Trace,
)
from kronline.verifier import verify

__all__ = [
    "GRU",
    "KF",
    "LIF",
    "LSTM",
    "OK",
    "RFLO",
    "RHN",
    "UORO",
    "Average",
    "Blocks",
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
    "LowRank",
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
    "Tail",
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
    "kf_tbptt",
    "linear",
    "load",
    "ok",
    "regularise",
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
