"""The verifier's result: one line and one verdict per check, and one for all."""

import json
import math
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Check:
    """One line: `value` must not exceed `limit`."""

    name: str
    cell: str
    estimator: str
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether it holds; NaN does not."""
        return self.value <= self.limit

    @property
    def bound(self) -> str:
        """The limit, for people."""
        return f"{self.limit:.2g}"


@dataclass(frozen=True)
class AtLeast(Check):
    """One line: `value` must be at least `limit`, as for a method that is biased."""

    @property
    def ok(self) -> bool:
        """Whether it holds; NaN does not."""
        return self.value >= self.limit

    @property
    def bound(self) -> str:
        """The limit, for people."""
        return f"≥ {self.limit:.2g}"


def _number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None


@dataclass
class Report:
    """Checks, in order."""

    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there are checks, and all of them hold."""
        return bool(self.checks) and all(c.ok for c in self.checks)

    def failed(self) -> list[Check]:
        """The checks that do not hold."""
        return [c for c in self.checks if not c.ok]

    def json(self) -> str:
        """One object: `ok`, and `checks`."""
        checks = [{**asdict(c), "value": _number(c.value), "ok": c.ok} for c in self.checks]
        return json.dumps({"ok": self.ok, "checks": checks}, indent=1, allow_nan=False)
