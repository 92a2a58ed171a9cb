"""Cell, readout, estimator and optimiser: a network that learns while it runs."""

from kronline.learner.fingerprint import check_same, fingerprint
from kronline.learner.learner import Learner
from kronline.learner.monitor import Spread
from kronline.learner.state import Out, State

__all__ = ["Learner", "Out", "Spread", "State", "check_same", "fingerprint"]
