"""The native CPU kernel: the same work as in pure JAX, faster. Nothing depends on it.

`ffi.cpp` and its headers hold the products that KF-RTRL, OK and KF-TBPTT are made of. A wheel for
Linux has them compiled for several kinds of CPU. Elsewhere they are built with the system's
compiler when they are first used, and kept in the user's cache folder. Where that is not possible,
pure JAX computes the same.
"""

from kronline.native.build import KernelError, Library, library
from kronline.native.calls import (
    MOST_SLOTS,
    merge_pair,
    merge_segment,
    mix,
    push_traces,
    push_traces_added,
    rmm,
)
from kronline.native.choice import Status, active, choose, status, usable, use

__all__ = [
    "MOST_SLOTS",
    "KernelError",
    "Library",
    "Status",
    "active",
    "choose",
    "library",
    "merge_pair",
    "merge_segment",
    "mix",
    "push_traces",
    "push_traces_added",
    "rmm",
    "status",
    "usable",
    "use",
]
