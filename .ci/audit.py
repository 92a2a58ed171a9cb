"""Whether `auditwheel` finds a wheel to be what its name says, with no library from outside.

python .ci/audit.py dist/kronline-0.1.0-py3-none-manylinux_2_34_x86_64.whl
"""

import re
import subprocess
import sys


def main() -> None:
    """Show what it says; fail where that is less than the name promises."""
    wheel = sys.argv[1]
    words = [sys.executable, "-m", "auditwheel", "show", wheel]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    print(said)
    tags = re.findall(r'platform tag:? (?:to )?"(\w+)"', " ".join(said.split()))
    if not tags:
        sys.exit(f"auditwheel names no platform tag for {wheel}")
    promised, got = _glibc(wheel), max(map(_glibc, tags))
    if got > promised:
        sys.exit(f"{wheel} needs glibc 2.{got}, its name says 2.{promised}")


def _glibc(text: str) -> int:
    found = re.search(r"manylinux_2_(\d+)", text)
    return int(found[1]) if found else 10**6


if __name__ == "__main__":
    main()
