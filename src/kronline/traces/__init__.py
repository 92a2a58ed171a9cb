"""Traces: what is remembered of the past. One file each, all of the same shape."""

from kronline.traces.average import Average
from kronline.traces.base import Steps, Trace
from kronline.traces.exact import Exact
from kronline.traces.kf import KF
from kronline.traces.nothing import Nothing
from kronline.traces.ok import OK
from kronline.traces.reverse_kf import ReverseKF
from kronline.traces.rflo import RFLO
from kronline.traces.snap import SnAp
from kronline.traces.tail import Tail
from kronline.traces.uoro import UORO

__all__ = [
    "KF",
    "OK",
    "RFLO",
    "UORO",
    "Average",
    "Exact",
    "Nothing",
    "ReverseKF",
    "SnAp",
    "Steps",
    "Tail",
    "Trace",
]
