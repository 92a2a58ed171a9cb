"""Recurrent cells: each is its step, written so that its linear maps are visible."""

from kronline.cells.base import Cell, LinearCell
from kronline.cells.block import Block
from kronline.cells.blocks import Blocks
from kronline.cells.elstm import ELSTM
from kronline.cells.gru import GRU, ResetBeforeGRU
from kronline.cells.init import (
    FanIn,
    GateBias,
    Init,
    Normal,
    Orthogonal,
    Ring,
    Spectral,
    Uniform,
    Weight,
    gate_bias,
)
from kronline.cells.lif import LIF
from kronline.cells.lowrank import LowRank
from kronline.cells.lru import LRU
from kronline.cells.lstm import LSTM
from kronline.cells.mingru import MinGRU
from kronline.cells.minlstm import MinLSTM
from kronline.cells.opaque import Opaque
from kronline.cells.rhn import RHN, DeepRHN
from kronline.cells.rtu import RTU
from kronline.cells.stack import Embedded, Stack
from kronline.cells.tanh import LeakyTanh, Tanh
from kronline.cells.unit import UnitCell

__all__ = [
    "ELSTM",
    "GRU",
    "LIF",
    "LRU",
    "LSTM",
    "RHN",
    "RTU",
    "Block",
    "Blocks",
    "Cell",
    "DeepRHN",
    "Embedded",
    "FanIn",
    "GateBias",
    "Init",
    "LeakyTanh",
    "LinearCell",
    "LowRank",
    "MinGRU",
    "MinLSTM",
    "Normal",
    "Opaque",
    "Orthogonal",
    "ResetBeforeGRU",
    "Ring",
    "Spectral",
    "Stack",
    "Tanh",
    "Uniform",
    "UnitCell",
    "Weight",
    "gate_bias",
]
