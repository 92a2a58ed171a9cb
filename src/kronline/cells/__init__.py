"""Recurrent cells: each is its step, written so that its linear maps are visible."""

from kronline.cells.base import Cell, LinearCell, Opaque, UnitCell
from kronline.cells.blocks import Blocks
from kronline.cells.gru import GRU, ResetBeforeGRU
from kronline.cells.init import (
    GateBias,
    Init,
    Normal,
    Orthogonal,
    Spectral,
    Uniform,
    Weight,
    gate_bias,
)
from kronline.cells.lif import LIF
from kronline.cells.lowrank import LowRank
from kronline.cells.lstm import LSTM
from kronline.cells.rhn import RHN, DeepRHN
from kronline.cells.stack import Embedded, Stack
from kronline.cells.tanh import LeakyTanh, Tanh

__all__ = [
    "GRU",
    "LIF",
    "LSTM",
    "RHN",
    "Blocks",
    "Cell",
    "DeepRHN",
    "Embedded",
    "GateBias",
    "Init",
    "LeakyTanh",
    "LinearCell",
    "LowRank",
    "Normal",
    "Opaque",
    "Orthogonal",
    "ResetBeforeGRU",
    "Spectral",
    "Stack",
    "Tanh",
    "Uniform",
    "UnitCell",
    "Weight",
    "gate_bias",
]
