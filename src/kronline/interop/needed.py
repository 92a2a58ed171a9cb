"""Frameworks are imported when they are asked for."""

import importlib
from typing import Any


def needed(module: str, who: str) -> Any:
    """The module, or an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        package = module.split(".", maxsplit=1)[0]
        raise ImportError(
            f"{who} needs {package}, which is not installed ({e}): pip install {package}, or "
            "pip install 'kronline[interop]' for all that kronline.interop and kronline.deploy use"
        ) from e
