"""Cell, readout, estimator and optimiser: a network that learns while it runs."""

from kronline.learner.learner import Learner, Out, State
from kronline.learner.monitor import Spread

__all__ = ["Learner", "Out", "Spread", "State"]
