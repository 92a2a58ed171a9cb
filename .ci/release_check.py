"""Whether a tag, the version and CHANGELOG.md agree; `--notes` prints what the changelog says.

python .ci/release_check.py v0.2.0
python .ci/release_check.py v0.2.0 --notes
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Fail where they do not."""
    tag = sys.argv[1]
    text = (ROOT / "src/kronline/_version.py").read_text()
    version = text.split('__version__ = "')[1].split('"')[0]
    if tag != f"v{version}":
        sys.exit(
            f"the tag is {tag}, the version in _version.py is {version}: it must be v{version}"
        )
    said = notes((ROOT / "CHANGELOG.md").read_text(), version)
    if not said:
        sys.exit(f"CHANGELOG.md has nothing under '## [{version}] - YYYY-MM-DD'")
    print(said if "--notes" in sys.argv[2:] else f"{tag}: version and changelog agree")


def notes(changelog: str, version: str) -> str:
    """What stands under a version's heading, which has a date."""
    parts = re.split(r"^## ", changelog, flags=re.MULTILINE)
    dated = re.compile(rf"\[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}\n")
    found = [part for part in parts if dated.match(part)]
    return found[0].partition("\n")[2].strip() if found else ""


if __name__ == "__main__":
    main()
