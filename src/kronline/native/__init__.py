"""The native CPU kernel: an accelerator behind the same traces, never needed.

`kernel.cpp` holds the products that KF-RTRL, OK and KF-TBPTT are made of. It is built with the
system's compiler when it is first used, and kept. Where that cannot be, pure JAX does the same.
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
