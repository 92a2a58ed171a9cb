"""How runs differ from the paper's, by their configurations."""

from collections.abc import Iterable, Sequence

from kronline.lab.analysis import labels
from kronline.lab.analysis.groups import Group
from kronline.lab.tasks import Task
from kronline.lab.tasks.paper import NOT_STATED, Difference, Published, Setting, by_value
from kronline.lab.wording import listed


def of_task(task: type[Task], groups: Sequence[Group]) -> list[Difference]:
    """Every setting that is not the paper's, then what never is."""
    out = of_settings(task.paper.settings, groups)
    out += _repetitions(task.paper, groups) + _length(task.paper, groups)
    return out + task.differences(groups)


def of_settings(settings: Iterable[Setting], groups: Sequence[Group]) -> list[Difference]:
    """Those that are not the paper's."""
    out = []
    for s in settings:
        found = [(g.method, g.config[s.key]) for g in groups if s.key in g.config]
        if any(v != s.value for _, v in found):
            here = by_value((method, labels.value(s.key, v)) for method, v in found)
            out.append(Difference(s.words, here, labels.value(s.key, s.value), s.why))
    return out


def _repetitions(paper: Published, groups: Sequence[Group]) -> list[Difference]:
    out = []
    seeds = sorted({len(g.runs) for g in groups})
    if seeds != [paper.seeds]:
        here = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        why = "the mean and its deviation are less certain with fewer"
        out.append(Difference("seeds", here, str(paper.seeds), why))
    rates = sorted({float(g.config["rate"]) for g in groups if "rate" in g.config}, reverse=True)
    if [labels.rate(r) for r in rates] != [labels.rate(r) for r in paper.rates]:
        here, grid = (", ".join(labels.rate(r) for r in rs) for rs in (rates, paper.rates))
        tuned = len(paper.rates) > 1
        why = f"the paper {'tunes the rate of each method' if tuned else 'has one for all methods'}"
        out.append(Difference("learning rates tried", here, grid, why))
    return out


def _length(paper: Published, groups: Sequence[Group]) -> list[Difference]:
    steps = sorted({int(run.status.get("steps", 0)) for g in groups for run in g.runs} - {0})
    if not steps or steps == [paper.steps]:
        return []
    few = len(steps) < 3
    here = listed([f"{s:,}" for s in steps]) if few else f"{steps[0]:,} to {steps[-1]:,}"
    theirs = NOT_STATED if paper.steps is None else f"{paper.steps:,}"
    return [Difference("steps", here, theirs, "longer runs come further")]
