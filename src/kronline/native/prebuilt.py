"""The kernels that a wheel brings along: which of them this machine takes, or why none."""

from pathlib import Path

from kronline.native import recipe
from kronline.native.recipe import KernelError

FOLDER = Path(__file__).with_name("prebuilt")


def there() -> bool:
    """Whether this installation has any; a source checkout and the pure wheel have none."""
    return any(FOLDER.glob("*.so"))


def choose(named: str = "") -> tuple[recipe.Level, Path]:
    """The best kernel that this CPU runs, or the one that is named.

    Args:
        named: a level, `x86-64-v3`, to take that one instead of the best.

    Raises:
        KernelError: the CPU runs none of those that are here.
    """
    machine, has = recipe.this_cpu()
    runs = recipe.levels(machine, has)
    if named:
        runs = [level for level in runs if level.name == named]
    for level in runs:
        file = FOLDER / recipe.wheel_name(level)
        if file.exists():
            return level, file
    here = ", ".join(sorted(file.stem.removeprefix("kernel-") for file in FOLDER.glob("*.so")))
    lacks = _lacks(machine, has, named)
    raise KernelError(f"this CPU ({machine}{lacks}) runs none of the wheel's kernels ({here})")


def _lacks(machine: str, has: frozenset[str], named: str) -> str:
    """What the CPU would need for the least of the levels, or for the named one."""
    if not has:
        return ", features not known"
    wanted = [x for x in recipe.LEVELS if x.machine == machine and named in ("", x.name)]
    missing = sorted(wanted[-1].needs - has) if wanted else []
    return f", without {' '.join(missing)}" if missing else ""
