"""One step of a cell to first order: Jacobians (dense, unit-wise, diagonal, ...), gradients.

A cell's `linearise` gives a `Lin`; traces multiply with its parts and never see the cell.
"""

from kronline.linearised.blocks import BlockH
from kronline.linearised.diagonal import DiagonalH
from kronline.linearised.gradients import Grads, Outer, Weighted, outer, written_out
from kronline.linearised.layers import Layer, LayerJac, LayerWeight, Met
from kronline.linearised.lowrank import LowRankH
from kronline.linearised.sensitivity import DenseM, OwnM, Sensitivity, UnitM, Vector
from kronline.linearised.statejac import DenseH, StateJac
from kronline.linearised.step import Kronecker, Lin, OpaqueLin, WeightJac
from kronline.linearised.structure import Pattern, Structure
from kronline.linearised.unitwise import UnitH, UnitWise

__all__ = [
    "BlockH",
    "DenseH",
    "DenseM",
    "DiagonalH",
    "Grads",
    "Kronecker",
    "Layer",
    "LayerJac",
    "LayerWeight",
    "Lin",
    "LowRankH",
    "Met",
    "OpaqueLin",
    "Outer",
    "OwnM",
    "Pattern",
    "Sensitivity",
    "StateJac",
    "Structure",
    "UnitH",
    "UnitM",
    "UnitWise",
    "Vector",
    "WeightJac",
    "Weighted",
    "outer",
    "written_out",
]
