"""A run over many processes, as a command is told of it: by flags, environment or cluster.

Flags come first, then KRONLINE_COORDINATOR, KRONLINE_PROCESS and KRONLINE_OF, then what Slurm or
Open MPI say, as JAX reads it.
"""

import os
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax

from kronline import processes
from kronline.errors import UsageError
from kronline.lab.runs import train
from kronline.lab.tasks import Task

PARENT = "KRONLINE_PARENT"  # set where a process of ours has started this one, and watches it
BESIDE = "KRONLINE_BESIDE"  # set where it has started process 0, too
ENVIRONMENT = {
    "coordinator": "KRONLINE_COORDINATOR",
    "process": "KRONLINE_PROCESS",
    "of": "KRONLINE_OF",
}


@dataclass(frozen=True)
class Split:
    """Over which processes a run's lanes are split."""

    processes: int = 1  # of this machine, over which lanes are split
    coordinator: str | None = None  # HOST:PORT of process 0, where processes are started one by one
    process: int | None = None  # the number of this one, 0 to N - 1
    of: int | None = None  # N, how many there are


class Place(NamedTuple):
    """Where a process stands among others."""

    coordinator: str
    process: int
    of: int


@cache
def train_of(of: type[Task]) -> type[Any]:
    """What the training of a task can be told."""

    @dataclass(frozen=True)
    class Train(Split, of):  # type: ignore[valid-type, misc]
        pass

    Train.__doc__ = of.__doc__
    return Train


def place(args: Split) -> Place | None:
    """The place that flags, environment or cluster give this process; None: it is alone."""
    found = {
        name: os.environ.get(variable) if getattr(args, name) is None else getattr(args, name)
        for name, variable in ENVIRONMENT.items()
    }
    missing = [name for name, value in found.items() if value is None]
    if len(missing) == len(found):
        return _cluster() if args.processes == 1 else None
    if missing:
        flags = ", ".join(f"--{name} ({ENVIRONMENT[name]})" for name in missing)
        raise UsageError(
            f"a process among others needs --coordinator, --process and --of, got no {flags}"
        )
    try:
        process, of = int(found["process"]), int(found["of"])  # type: ignore[arg-type]
    except ValueError as e:
        raise UsageError(f"--process and --of must be numbers: {e}") from e
    if not 0 <= process < of:
        raise UsageError(f"--process must be one of 0 to {of - 1}, got {process}")
    return Place(str(found["coordinator"]), process, of) if of > 1 else None


def places(args: Any) -> list[Place]:
    """Of the processes that a command is to start for its work; none: it does it by itself."""
    if not isinstance(args, Split) or getattr(args, "print_config", False) or PARENT in os.environ:
        return []
    for name in ("START", "PATIENCE"):
        _seconds(name)
    if args.processes != 1:
        if any(getattr(args, name) is not None for name in ENVIRONMENT):
            raise UsageError(
                "--processes starts all processes on this machine; leave it out where each is "
                "started by itself, with --coordinator, --process and --of"
            )
        return here(args.processes)
    mine = place(args)
    return [mine] if mine else []


def here(count: int) -> list[Place]:
    """The places of so many processes of this machine."""
    if count < 1:
        raise UsageError(f"processes must be >= 1, got {count}")
    address = f"127.0.0.1:{free_port()}"
    return [Place(address, i, count) for i in range(count)]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _cluster() -> Place | None:
    """What Slurm or Open MPI say, if they have started several processes."""
    from jax._src.clusters.ompi_cluster import OmpiCluster  # noqa: PLC0415  JAX has no public way
    from jax._src.clusters.slurm_cluster import SlurmCluster  # noqa: PLC0415

    for cluster in (SlurmCluster, OmpiCluster):
        if cluster.is_env_present() and (of := cluster.get_process_count()) > 1:
            port = os.environ.get("JAX_COORDINATOR_PORT")
            address = cluster.get_coordinator_address(processes.START, port)
            return Place(address, cluster.get_process_id(), of)
    return None


def said_by_another() -> bool:
    """Whether what is wrong with the command is said by process 0, beside this one."""
    return BESIDE in os.environ and os.environ.get(ENVIRONMENT["process"]) != "0"


@contextmanager
def joined(args: Split) -> Iterator[None]:
    """This process, among the others for as long as the command takes; or alone, as ever.

    Where one of several processes fails, it ends without waiting for the others, which notice.
    """
    where = place(args)
    if where is None:
        yield
        return
    host = where.coordinator.rpartition(":")[0]
    if where.process == 0 and not processes.loopback(host):
        print(
            f"kronline: process 0 listens on {where.coordinator}, and every process on a port of "
            "its own beside it: without encryption, for whoever reaches that network",
            file=sys.stderr,
        )
    try:
        jax.config.update("jax_num_cpu_devices", 1)  # a process has one device, with all its cores
        processes.start(
            *where, timeout=_seconds("START"), patience=_seconds("PATIENCE"), hint=_hint
        )
        yield
        processes.stop()
    except (UsageError, OSError) as e:
        _leave(
            2, "" if processes.said_by_first(str(e)) else f"kronline: process {where.process}: {e}"
        )
    except KeyboardInterrupt:
        _leave(130, "")
    except Exception as e:
        if processes.lost_another(e):
            processes.wait_to_be_told()
        _leave(1, "".join(traceback.format_exception(e)))


def _seconds(name: str) -> int:
    text = os.environ.get(f"KRONLINE_{name}", str(getattr(processes, name)))
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"KRONLINE_{name} must be a number of seconds, got {text!r}")
    return int(text)


def _hint() -> str:
    return f"go on with `kronline resume {train.AT_WORK[0]}`" if train.AT_WORK else ""


def _leave(code: int, why: str) -> None:
    """At once: JAX's runtime would wait for the other processes, and abort."""
    sys.stdout.flush()
    if why:
        print(why, file=sys.stderr, flush=True)
    os._exit(code)
