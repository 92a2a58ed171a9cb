"""Estimators: a trace and a window, and those that are something else; the named methods."""

from kronline.estimators import methods
from kronline.estimators.base import Estimator, Model, Params, Seen, Segment
from kronline.estimators.dni import DNI
from kronline.estimators.online import Online
from kronline.estimators.own_loss import OwnLoss
from kronline.estimators.reservoir import Reservoir
from kronline.estimators.rolling import Rolling
from kronline.estimators.window import exact_segment

__all__ = [
    "DNI",
    "Estimator",
    "Model",
    "Online",
    "OwnLoss",
    "Params",
    "Reservoir",
    "Rolling",
    "Seen",
    "Segment",
    "exact_segment",
    "methods",
]
