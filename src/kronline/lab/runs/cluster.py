"""The Dask cluster that a sweep runs on: one of this machine, or one that is there already.

A scheduler takes orders from whoever reaches it, so one of ours listens on the loopback address
only, and speaks TLS with a key that is made for this sweep. What it opens is said. A cluster that
is there already has the TLS settings of Dask's own configuration.
"""

import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kronline.errors import UsageError
from kronline.lab import machine
from kronline.lab.wording import plural

LOOPBACK = "127.0.0.1"
DASHBOARD = 8787  # where Dask's usually is; another, if that is taken
CONNECT = 20  # seconds in which a scheduler has to answer
SETTINGS = {  # of Dask, for a cluster of this machine
    "distributed.nanny.pre-spawn-environ": {},  # the runs have their own, below
    "distributed.worker.profile.enabled": False,  # a worker only waits for its run
    "distributed.scheduler.allowed-failures": 10**6,  # counted here, by what a run has got done
    "distributed.scheduler.worker-saturation": 1.0,  # no run waits at a worker that is at work
}


@contextmanager
def opened(where: str | None, workers: int) -> Iterator[Any]:
    """A client of the cluster.

    Args:
        where: the file or address of a scheduler; None: a cluster of this machine.
        workers: how many, on this machine.

    Yields:
        A `distributed.Client`.

    Raises:
        UsageError: if there is no scheduler, or no `distributed`.
    """
    try:
        import dask  # noqa: PLC0415  takes a second, and only sweeps need it
        import distributed  # noqa: PLC0415
    except ImportError as e:
        raise UsageError(f"a sweep needs {e.name}: pip install 'kronline[lab]'") from e
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if where is None:
            stack.enter_context(dask.config.set(SETTINGS))
            cluster = stack.enter_context(_local(distributed, workers))
            client = distributed.Client(cluster, set_as_default=False)
        else:
            client = _joined(distributed, where)
        yield stack.enter_context(client)


def environment(sweep: Path, where: str | None) -> dict[str, str]:
    """Of the runs, where it does not say otherwise."""
    # LAPACK's own threads wait for each other by spinning: on a shared core, most of the time
    given = {"OPENBLAS_NUM_THREADS": "1"}
    if where is None:  # hosts of a cluster may differ, and what is compiled for one crash another
        # programs that differ in the seed alone are compiled once
        given["JAX_COMPILATION_CACHE_DIR"] = str(sweep / ".programs")
        given["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return given


def shares(workers: int | None, tasks: int) -> list[list[int]]:
    """The cores of each worker of this machine: all of them, dealt out evenly.

    By all runs, done or not: what is begun on so many cores ends on as many, bit for bit.
    """
    workers = machine.cores() if workers is None else workers
    if workers < 1:
        raise UsageError(f"workers must be >= 1, got {workers}")
    workers = max(1, min(workers, tasks))
    try:
        cores = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not on this system: they share as they can
        return [[]] * workers
    if workers >= len(cores):
        return [[cores[i % len(cores)]] for i in range(workers)]
    return [cores[i::workers] for i in range(workers)]


def _local(distributed: Any, workers: int) -> Any:
    """A cluster of this machine, with a process for each worker."""
    try:
        security, who = distributed.Security.temporary(), "TLS, with a key made for this sweep"
    except ImportError:
        security = distributed.Security(require_encryption=False)
        who = "without TLS: other users of this machine can reach it; pip install cryptography"
    dashboard = importlib.util.find_spec("bokeh") is not None
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host=LOOPBACK,
        security=security,
        dashboard_address=f"{LOOPBACK}:{DASHBOARD if dashboard else 0}",
        memory_limit=0,  # a worker has next to nothing in memory, and its run is on its own
        silence_logs=logging.CRITICAL,
        preload=["kronline.lab.runs.member"],
    )
    _say(
        f"a Dask cluster of this machine: {plural(workers, 'worker')}; the scheduler listens at "
        f"{cluster.scheduler_address}, on loopback only ({who})"
    )
    if dashboard:
        _say(f"dashboard: {cluster.dashboard_link}")
    return cluster


def _joined(distributed: Any, where: str) -> Any:
    """A client of a scheduler that is there already."""
    file = "://" not in where and (where.endswith(".json") or Path(where).exists())
    if file and not Path(where).is_file():
        raise UsageError(
            f"--cluster {where}: there is no such file; `dask scheduler --scheduler-file {where}` "
            "starts a scheduler and writes it"
        )
    if not file and ":" not in where:
        raise UsageError(
            "cluster needs the file or the address of a Dask scheduler, as scheduler.json or "
            f"tcp://10.0.0.1:8786, got {where!r}"
        )
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what is lost we say
    told = {"scheduler_file": where} if file else {"address": where}
    try:
        client = distributed.Client(**told, timeout=CONNECT, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as e:
        raise UsageError(
            f"no Dask scheduler answers at {where}: {e or type(e).__name__}. Start one, by `dask "
            "scheduler` for instance, and give the same command again; without --cluster the sweep "
            "runs on this machine. For TLS, Dask's own settings need ca-file, key and cert"
        ) from e
    _say(f"the Dask cluster at {client.scheduler.address}")
    if client.dashboard_link:
        _say(f"dashboard: {client.dashboard_link}")
    return client


def _say(text: str) -> None:
    print(f"kronline: {text}", file=sys.stderr, flush=True)
