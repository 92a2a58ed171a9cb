"""`kronline info`."""

import json
import platform
from dataclasses import dataclass
from typing import Any, cast

import jax

from kronline import native
from kronline._version import __version__
from kronline.lab.machine import cores, device


@dataclass(frozen=True)
class Info:
    """Show versions, devices, and whether the native kernel is used, and why.

    Try:
        kronline info
        kronline info --json
    """

    json: bool = False  # print one JSON object instead of lines


def info(args: Info) -> int:
    """What this installation runs on."""
    path = native.status()
    kernel = native.library() if path.active else None
    found = {
        "kronline": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "devices": [str(d) for d in jax.devices()],
        "device": device(),
        "backend": jax.devices()[0].client.platform_version.splitlines()[0],
        "cores": cores(),
        "path": "native kernel" if path.active else "pure JAX",
        "reason": path.reason,
        "kernel": str(kernel.path) if isinstance(kernel, native.Library) else None,
        "programs": cast(Any, jax.config).jax_compilation_cache_dir,
    }
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:9} {', '.join(value) if isinstance(value, list) else value or 'none'}")
    return 0
