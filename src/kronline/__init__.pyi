# What `import kronline` offers, and where it comes from; `__init__.py` reads this file.

from kronline import (
    deploy as deploy,
)
from kronline import (
    interop as interop,
)
from kronline import (
    processes as processes,
)
from kronline import (
    regularise as regularise,
)
from kronline._version import (
    __version__ as __version__,
)
from kronline.cells import (
    ELSTM as ELSTM,
)
from kronline.cells import (
    GRU as GRU,
)
from kronline.cells import (
    LIF as LIF,
)
from kronline.cells import (
    LRU as LRU,
)
from kronline.cells import (
    LSTM as LSTM,
)
from kronline.cells import (
    RHN as RHN,
)
from kronline.cells import (
    RTU as RTU,
)
from kronline.cells import (
    Block as Block,
)
from kronline.cells import (
    Blocks as Blocks,
)
from kronline.cells import (
    Cell as Cell,
)
from kronline.cells import (
    DeepRHN as DeepRHN,
)
from kronline.cells import (
    Embedded as Embedded,
)
from kronline.cells import (
    FanIn as FanIn,
)
from kronline.cells import (
    LeakyTanh as LeakyTanh,
)
from kronline.cells import (
    LinearCell as LinearCell,
)
from kronline.cells import (
    LowRank as LowRank,
)
from kronline.cells import (
    MinGRU as MinGRU,
)
from kronline.cells import (
    MinLSTM as MinLSTM,
)
from kronline.cells import (
    Normal as Normal,
)
from kronline.cells import (
    Opaque as Opaque,
)
from kronline.cells import (
    Orthogonal as Orthogonal,
)
from kronline.cells import (
    ResetBeforeGRU as ResetBeforeGRU,
)
from kronline.cells import (
    Ring as Ring,
)
from kronline.cells import (
    Spectral as Spectral,
)
from kronline.cells import (
    Stack as Stack,
)
from kronline.cells import (
    Tanh as Tanh,
)
from kronline.cells import (
    Uniform as Uniform,
)
from kronline.cells import (
    UnitCell as UnitCell,
)
from kronline.cells import (
    Weight as Weight,
)
from kronline.cells import (
    gate_bias as gate_bias,
)
from kronline.checkpoint import (
    load as load,
)
from kronline.checkpoint import (
    save as save,
)
from kronline.estimators.base import (
    Estimator as Estimator,
)
from kronline.estimators.base import (
    Params as Params,
)
from kronline.estimators.methods import (
    artbp as artbp,
)
from kronline.estimators.methods import (
    bptt as bptt,
)
from kronline.estimators.methods import (
    dni as dni,
)
from kronline.estimators.methods import (
    immediate as immediate,
)
from kronline.estimators.methods import (
    kf_rtrl as kf_rtrl,
)
from kronline.estimators.methods import (
    kf_tbptt as kf_tbptt,
)
from kronline.estimators.methods import (
    ok as ok,
)
from kronline.estimators.methods import (
    reservoir as reservoir,
)
from kronline.estimators.methods import (
    reverse_kf as reverse_kf,
)
from kronline.estimators.methods import (
    rflo as rflo,
)
from kronline.estimators.methods import (
    rolling_tbptt as rolling_tbptt,
)
from kronline.estimators.methods import (
    rtrl as rtrl,
)
from kronline.estimators.methods import (
    snap as snap,
)
from kronline.estimators.methods import (
    spatial as spatial,
)
from kronline.estimators.methods import (
    tbptt as tbptt,
)
from kronline.estimators.methods import (
    uoro as uoro,
)
from kronline.estimators.online import (
    Online as Online,
)
from kronline.estimators.rolling import (
    Rolling as Rolling,
)
from kronline.lanes import (
    Loop as Loop,
)
from kronline.lanes import (
    Shard as Shard,
)
from kronline.lanes import (
    Vmap as Vmap,
)
from kronline.learner import (
    Learner as Learner,
)
from kronline.learner import (
    Out as Out,
)
from kronline.learner import (
    State as State,
)
from kronline.noise import (
    Draw as Draw,
)
from kronline.readout import (
    Readout as Readout,
)
from kronline.readout import (
    linear as linear,
)
from kronline.readout import (
    softmax as softmax,
)
from kronline.traces import (
    KF as KF,
)
from kronline.traces import (
    KFTBPTT as KFTBPTT,
)
from kronline.traces import (
    OK as OK,
)
from kronline.traces import (
    RFLO as RFLO,
)
from kronline.traces import (
    UORO as UORO,
)
from kronline.traces import (
    Average as Average,
)
from kronline.traces import (
    Exact as Exact,
)
from kronline.traces import (
    InLayer as InLayer,
)
from kronline.traces import (
    Nothing as Nothing,
)
from kronline.traces import (
    ReverseKF as ReverseKF,
)
from kronline.traces import (
    SnAp as SnAp,
)
from kronline.traces import (
    Stepwise as Stepwise,
)
from kronline.traces import (
    Trace as Trace,
)
from kronline.verifier import (
    verify as verify,
)
