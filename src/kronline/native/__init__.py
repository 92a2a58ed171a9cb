"""The native CPU kernel: an accelerator behind the same traces, never needed.

`ffi.cpp` and its headers hold the products that KF-RTRL, OK and KF-TBPTT are made of. They are
built with the system's compiler when they are first used, and kept. Where that cannot be, pure JAX
does the same.
"""

from kronline.native.build import KernelError, Library, library
from kronline.native.calls import merge, rmm, walk
from kronline.native.choice import Status, active, choose, status, usable, use

__all__ = [
    "KernelError",
    "Library",
    "Status",
    "active",
    "choose",
    "library",
    "merge",
    "rmm",
    "status",
    "usable",
    "use",
    "walk",
]
