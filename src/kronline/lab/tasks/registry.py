"""All tasks: one line each."""

from importlib import import_module

from kronline.lab.tasks.base import Task

# the module in this folder, and the task's class in it
HOMES = (
    ("copy", "CopyTask"),
    ("text", "TextTask"),
    ("series", "SeriesTask"),
)

TASKS: dict[str, type[Task]] = {
    task.kind: task
    for task in (getattr(import_module(f"{__package__}.{home}"), name) for home, name in HOMES)
}
