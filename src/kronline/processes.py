"""One program over many processes: JAX's own runtime is started, watched and ended here.

All processes run the same program. Process 0 has the coordinator, a small service of JAX by which
processes find each other, and know that the others are alive; gradients are summed by gloo, over
connections between the processes. What opens a port listens on one address: that of the coordinator
that was named, 127.0.0.1 for instance, and nowhere else.

A process that dies, hangs or cannot be reached ends the others: with a message that names it, the
exit code `LOST`, and within `patience` seconds and `GRACE` more. Where it is process 0, JAX's
runtime may be first, and abort the others; the command `kronline` then says what that means.
"""

import functools
import ipaddress
import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kronline.errors import UsageError

START = 120  # seconds for all processes to be there
PATIENCE = 20  # seconds without a sign of life, after which a process counts as lost
GRACE = 10  # seconds that noticing it may take besides
MEET = 900  # seconds that a process waits for the others between two programs
LOST = 4  # the exit code of a process that has lost another
LOOK = 0.5  # seconds between looks
SHORT = 0.01  # seconds between looks at what comes soon
SAME = 3  # seconds for processes to come to the same error
FINISHED, ERROR = "finished", "error"  # where processes say that they have come to the end, or why
PAST = "no_grpc_proxy"  # the variable by which gRPC, JAX's way to the coordinator, is told
MEANT = (b"recoverable task feature", b"peer ranks")  # in what JAX's runtime and gloo say of it

_watch: "_Watch | None" = None


def start(
    coordinator: str,
    process: int,
    of: int,
    *,
    timeout: int = START,
    patience: int = PATIENCE,
    hint: Callable[[], str] = lambda: "",
) -> None:
    """Join the processes of one program; before anything else is done with JAX.

    Args:
        coordinator: HOST:PORT of process 0, the same for all. Process 0 listens on that address
            alone: 127.0.0.1 is for processes of one machine.
        process: the number of this one.
        of: how many there are.
        timeout: seconds for all of them to be there.
        patience: seconds without a sign of life, after which a process counts as lost.
        hint: what is said besides when one is lost: how to go on.

    Where not all of them come in time, the process ends, and says what it has waited for.

    Example:
        >>> import kronline as kl
        >>> kl.processes.start("127.0.0.1:8476", process=0, of=1)  # one process: nothing to do
    """
    host, port = _address(coordinator)
    if not 0 <= process < of:
        raise UsageError(f"process must be one of 0..{of - 1}, got {process}")
    if of == 1:
        return
    _past_proxies(host)
    # a lost process is reported by `_Watch`, by its number; JAX alone would abort with a stack
    jax.config.update("jax_enable_recoverability", True)
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    jax.config.update("jax_check_proxy_envs", False)  # a warning; see `_past_proxies`
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    waited = _not_started(coordinator, process, of, timeout)
    with _Filtered() as written, _at_most(timeout, waited, written):
        jax.distributed.initialize(
            coordinator,
            of,
            process,
            cluster_detection_method="deactivate",
            initialization_timeout=timeout + GRACE,
            heartbeat_timeout_seconds=patience,
            shutdown_timeout_seconds=patience,
            coordinator_bind_address=f"{host}:{port}",
        )
        _meet("start", timeout + GRACE)
        _gloo_on(_own_address(host, port))
        highest(0)
    global _watch  # noqa: PLW0603  one per process, as JAX's own runtime is
    _watch = _Watch(process, of, coordinator, patience, hint)


@contextmanager
def _at_most(seconds: float, message: str, written: "_Filtered") -> Iterator[None]:
    """End the process with a message after so many seconds: JAX would abort, without one."""

    def end() -> None:
        os.write(written.kept[1], f"kronline: {message}\n".encode())
        os._exit(2)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _address(coordinator: str) -> tuple[str, int]:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"coordinator must be HOST:PORT, 127.0.0.1:8476 say, got {coordinator!r}")
    return host, int(port)


def _past_proxies(host: str) -> None:
    """Connections to the coordinator go past proxies: these would hold them up, or refuse them."""
    known = os.environ.get(PAST) or os.environ.get("no_proxy") or ""
    os.environ[PAST] = ",".join([*filter(None, [known]), host])


def _own_address(host: str, port: int) -> str:
    """The address by which this process reaches the coordinator: so the others reach it, too."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.connect(address)  # of a datagram socket: nothing is sent
        return str(s.getsockname()[0])


def _gloo_on(address: str) -> None:
    """Gloo listens on this address. By itself it takes what the host's name stands for."""
    from jax._src import xla_bridge  # noqa: PLC0415  there is no public way to name the address
    from jaxlib import _jax  # noqa: PLC0415

    gloo = _jax.make_gloo_tcp_collectives(distributed_client=_client(), hostname=address)
    made = functools.partial(xla_bridge.make_cpu_client, collectives=gloo)
    xla_bridge.register_backend_factory("cpu", made, priority=0, fail_quietly=False)


def _client() -> Any:
    from jax._src import distributed  # noqa: PLC0415  as JAX's own multihost_utils does it

    return distributed.global_state.client


def _not_started(coordinator: str, process: int, of: int, timeout: int) -> str:
    what = f"for process 0, the coordinator at {coordinator}, and all others"
    if process == 0:
        what = f"for {_named(list(range(1, of)))} to come to {coordinator}"
    return (
        f"process {process} of {of} waited {timeout} s {what}; start all {of} within that time, "
        "with the same HOST:PORT, and a port that no firewall closes"
    )


class _Filtered:
    """What C++ writes meanwhile: nothing on standard output, and not what is meant to be so."""

    def __enter__(self) -> "_Filtered":
        sys.stdout.flush()
        sys.stderr.flush()
        self.file = tempfile.TemporaryFile()
        self.kept = [os.dup(1), os.dup(2)]
        for number in (1, 2):
            os.dup2(self.file.fileno(), number)
        return self

    def __exit__(self, *_: object) -> None:
        for number, kept in zip((1, 2), self.kept, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        self.file.seek(0)
        for line in self.file.read().splitlines():
            if not any(text in line for text in MEANT):
                os.write(2, line + b"\n")
        self.file.close()


# -- between programs ------------------------------------------------------------------------------


def several() -> bool:
    """Whether this program has more than one process."""
    return jax.process_count() > 1


def first() -> bool:
    """Whether this is process 0, which alone logs, and shows progress."""
    return jax.process_index() == 0


_met = 0  # how often: the same number in all processes


def meet(timeout: float = MEET) -> None:
    """Wait until all processes are here; one that does not come is named, and ends this one."""
    global _met  # noqa: PLW0603
    if not several():
        return
    _met += 1
    try:
        _meet(f"meeting {_met}", timeout)
    except jax.errors.JaxRuntimeError as e:
        if "timed out" not in str(e):
            wait_to_be_told()
            raise
        assert _watch is not None
        who = _late(str(e))
        _watch.give_up(f"{who} did not come to the next part of the run within {timeout:.0f} s")


def _meet(name: str, timeout: float) -> None:
    _client().wait_at_barrier(f"kronline {name}", int(1000 * timeout))


def _late(error: str) -> str:
    """Who is missing at a barrier, by JAX's message: it names two at most."""
    came = re.search(r"reached the barrier: (\d+)/(\d+)", error)
    missing = int(came[2]) - int(came[1]) if came else 0
    lines = error.partition("timed out task names:")[2].split("\n")[1:]
    named = sorted({int(line) for line in lines if line.strip().isdigit()})
    if not named:
        return "another process"
    return _named(named) + (f" and {missing - len(named)} more" if missing > len(named) else "")


def highest(value: int) -> int:
    """The largest of all processes' values; they agree by it on what to do next."""
    if not several():
        return value
    mesh = Mesh(jax.devices(), ("all",))
    here = np.full(jax.local_device_count(), value, np.int32)
    every = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("all")), here)
    most = jax.jit(jnp.max, out_shardings=NamedSharding(mesh, PartitionSpec()))
    return int(np.asarray(most(every)))


def told(name: str, text: Callable[[], str]) -> str:
    """A text that process 0 makes, in all processes.

    Args:
        name: of the text, once in a program.
        text: makes it, in process 0 alone.
    """
    if not several():
        return text()
    if first():
        made = text()
        put(name, made)
        return made
    return got(name)


def put(name: str, text: str) -> None:
    """Say something to the other processes."""
    _client().key_value_set(f"kronline {name}", text, allow_overwrite=True)


def got(name: str, timeout: float = MEET) -> str:
    """What another process says, waiting for it if need be."""
    return str(_client().blocking_key_value_get(f"kronline {name}", int(1000 * timeout)))


def forget(name: str) -> None:
    """What was said is no longer needed."""
    _client().key_value_delete(f"kronline {name}")


def said_by_first(error: str) -> bool:
    """Before the end by an error: whether process 0 ends by the same, and says it.

    Process 0 waits for the others meanwhile: without the coordinator JAX's runtime aborts them.
    """
    if _watch is None:
        return False
    _watch.over = True
    until = time.monotonic() + SAME
    try:
        if not first():
            same = got(f"{ERROR} 0", SAME) == error
            put(f"{ERROR}s/{_watch.process}", "")
            return same
        put(f"{ERROR} 0", error)
        while time.monotonic() < until:
            if len(_watch.client.key_value_dir_get(f"kronline {ERROR}s")) == _watch.of - 1:
                time.sleep(LOOK)  # for them to end
                break
            time.sleep(SHORT)
    except jax.errors.JaxRuntimeError:
        pass
    return False


def stop() -> None:
    """The end of the program, when all processes have come to it.

    Each says that it has finished, waits until all have, and leaves; process 0, which has the
    coordinator, leaves last. So whoever has left is known to have finished (`_Watch.finished`), and
    the others are watched until then.
    """
    global _watch  # noqa: PLW0603
    if _watch is None:
        return
    watch = _watch
    put(f"{FINISHED}/{watch.process}", "")
    meet()
    watch.over = True
    while first() and len(watch.alive()) > 1:  # an answer may be that of a question asked before
        time.sleep(SHORT)
    _watch = None
    jax.distributed.shutdown()
    watch.asks.join(LOOK + SHORT)


# -- the others ------------------------------------------------------------------------------------


def _named(processes: list[int]) -> str:
    word = "process" if len(processes) == 1 else "processes"
    return f"{word} {', '.join(map(str, processes))}"


class _Watch:
    """Asks JAX's runtime who is alive, for as long as the program runs."""

    def __init__(
        self, process: int, of: int, coordinator: str, patience: int, hint: Callable[[], str]
    ):
        self.process, self.of, self.patience, self.hint = process, of, patience, hint
        self.coordinator, self.over = coordinator, False
        self.client, self.parent = _client(), os.getppid()
        self.heard = time.monotonic()
        self._ending = threading.Lock()
        self.asks = threading.Thread(target=self._ask, daemon=True)
        for thread in (self.asks, threading.Thread(target=self._look, daemon=True)):
            thread.start()

    def alive(self) -> set[int]:
        """All processes ask this at once; the answer comes when all that are alive have asked."""
        return set(self.client.get_live_nodes(list(range(self.of))))

    def finished(self) -> bool:
        """Whether all processes have come to the end of the program: then any of them may leave."""
        try:
            return len(self.client.key_value_dir_get(f"kronline {FINISHED}")) == self.of
        except jax.errors.JaxRuntimeError:  # the coordinator, which leaves last, is not there
            return False

    def _ask(self) -> None:
        while not self.over:
            try:
                alive = self.alive()
            except jax.errors.JaxRuntimeError:
                alive = set(range(1, self.of))  # the coordinator's process has ended
            if lost := sorted(set(range(self.of)) - alive):
                if not self.finished() and not self.over:
                    have = "has" if len(lost) == 1 else "have"
                    silent = f"{have} not given a sign of life for {self.patience} s"
                    self.give_up(f"{_named(lost)} of {self.of} ended, or {silent}")
                return
            self.heard = time.monotonic()
            time.sleep(LOOK)

    def _look(self) -> None:
        """The answer may not come at all; and whoever started this process may be gone."""
        looked = time.monotonic()
        while not self.over:
            time.sleep(LOOK)
            if os.environ.get("KRONLINE_PARENT") and os.getppid() != self.parent:
                self.give_up("the process that started this one is gone")
            now = time.monotonic()
            self.heard += max(0, now - looked - 2 * LOOK)  # when this process itself was held up
            looked, quiet = now, now - self.heard
            if quiet > self.patience + GRACE and not self.over:
                where = f"the coordinator at {self.coordinator}"
                self.give_up(f"process 0 of {self.of}, {where}, has not answered for {quiet:.0f} s")

    def give_up(self, why: str) -> NoReturn:
        """Say why, and end this process at once: its other threads wait for who will not come."""
        with self._ending:
            more = self.hint()
            end = f"process {self.process} ends{'; ' + more if more else ''}"
            os.write(2, f"\nkronline: {why}; {end}\n".encode())
            os._exit(LOST)


def lost_another(error: BaseException) -> bool:
    """Whether an error is that of a sum, or of the coordinator, because a process is gone."""
    text = str(error).lower()
    return _watch is not None and ("gloo" in text or "coordination" in text)


def wait_to_be_told() -> None:
    """After such an error: until the watch knows which process it was, and ends this one."""
    assert _watch is not None
    time.sleep(_watch.patience + 2 * GRACE)


def loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
