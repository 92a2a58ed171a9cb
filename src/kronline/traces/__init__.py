"""Traces: what is remembered of the past. One file each, all of the same shape."""

from kronline.traces.average import Average
from kronline.traces.base import Memory, Read, Steps, Stepwise, Trace, one_step
from kronline.traces.exact import Exact
from kronline.traces.in_layer import InLayer
from kronline.traces.kf import KF
from kronline.traces.kf_tbptt import KFTBPTT
from kronline.traces.nothing import Nothing
from kronline.traces.ok import OK
from kronline.traces.reverse_kf import ReverseKF
from kronline.traces.rflo import RFLO
from kronline.traces.snap import SnAp
from kronline.traces.uoro import UORO

__all__ = [
    "KF",
    "KFTBPTT",
    "OK",
    "RFLO",
    "UORO",
    "Average",
    "Exact",
    "InLayer",
    "Memory",
    "Nothing",
    "Read",
    "ReverseKF",
    "SnAp",
    "Steps",
    "Stepwise",
    "Trace",
    "one_step",
]
