"""A sweep on a Dask cluster that is there already, by TLS; its scheduler is killed, and is back."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kills import newest, same
from kronline.lab.runs import folder, lock
from running import SMALL, command, kill_worker, process

distributed = pytest.importorskip("distributed")
SEEDS = (0, 1)


def keys(place):
    """TLS settings, for all processes of a cluster."""
    secure = distributed.Security.temporary()
    for name, text in (("ca", secure.tls_ca_file), ("key", secure.tls_client_key)):
        (place / f"{name}.pem").write_text(text)
    given = {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(place / "ca.pem")}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        given[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = str(place / "key.pem")
        given[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = str(place / "ca.pem")
    return given


class Cluster:
    """A scheduler and a worker, by Dask's own commands."""

    def __init__(self, place, env):
        self.file = place / "scheduler.json"
        self.file.unlink(missing_ok=True)
        self.log = (place / "dask.txt").open("ab")
        self.env = env
        at = ["--protocol", "tls://", "--scheduler-file", self.file, "--no-dashboard"]
        self.scheduler = self._dask("scheduler", *at, "--host", "127.0.0.1", "--port", 0)
        while not self.file.exists():
            assert self.scheduler.poll() is None, (place / "dask.txt").read_text()
            time.sleep(0.05)
        once = ["--nworkers", 1, "--nthreads", 1]
        self.worker = self._dask("worker", *at, "--host", "127.0.0.1", *once)

    def _dask(self, kind, *words):
        me = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, words)]
        return subprocess.Popen(me, stdout=self.log, stderr=self.log, env=self.env)

    def close(self):
        for p in (self.worker, self.scheduler):
            p.kill()
            p.wait()
        self.log.close()


def words(out, where):
    grid = ["--estimators", "kf_rtrl", "--rates", 0.01, "--seeds", *SEEDS, "--cluster", where]
    return ["sweep", "copy", *SMALL, "--steps", 800, *grid, "--out", out, "--json"]


def caught(sweep, out, log):
    """The process of a member that has written a checkpoint; it is not let go on."""
    while True:
        assert sweep.poll() is None, log.read_text()
        for run in out.glob("kf_rtrl*"):
            if newest(run) and folder.in_use(run):
                pid = lock.holder(run)["pid"]
                os.kill(pid, signal.SIGSTOP)
                return run, pid
        time.sleep(0.001)


def test_the_same_command_goes_on(tmp_path):
    out, log = tmp_path / "it", tmp_path / "log"
    env = os.environ | keys(tmp_path)
    first = Cluster(tmp_path, env)
    second = None
    try:
        with log.open("wb") as said:
            sweep = process(*words(out, first.file), stdout=said, stderr=said, env=env)
            run, pid = caught(sweep, out, log)
            kill_worker(pid)  # its nanny starts another
            os.kill(pid, signal.SIGCONT)
            before = newest(run)
            while newest(run) == before:
                assert sweep.poll() is None, log.read_text()
                time.sleep(0.01)
            run, pid = caught(sweep, out, log)
            first.scheduler.kill()
            assert sweep.wait(120) == 2
            with contextlib.suppress(ProcessLookupError):  # it may have been ended with its worker
                os.kill(pid, signal.SIGKILL)  # let go on before, it would come to its end
        assert "the Dask scheduler is gone" in log.read_text()
        assert "the Dask cluster at tls://127.0.0.1:" in log.read_text()
        assert not all(newest(r).endswith("00000800.safetensors") for r in out.glob("kf_rtrl*"))
        second = Cluster(tmp_path, env)
        with (tmp_path / "result").open("wb") as result, log.open("ab") as said:
            again = process(*words(out, second.file), stdout=result, stderr=said, env=env)
            assert again.wait(300) == 0, log.read_text()
        assert json.loads((tmp_path / "result").read_text())["failed"] == []
    finally:
        for cluster in (first, second):
            if cluster is not None:
                cluster.close()
    for run in out.glob("kf_rtrl*"):
        alone = tmp_path / run.name
        assert command("train", "copy", "--config", run / "config.toml", "--out", alone) == 0
        assert same(run, alone) == []


def test_a_scheduler_that_is_not_there(tmp_path, capsys):
    assert command(*words(tmp_path / "a", tmp_path / "none.json")) == 2
    assert "there is no such file; `dask scheduler --scheduler-file" in capsys.readouterr().err
    assert command(*words(tmp_path / "b", "somewhere")) == 2
    assert "needs the file or the address of a Dask scheduler" in capsys.readouterr().err


def test_without_distributed(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert command(*words(tmp_path / "a", "tcp://127.0.0.1:1")) == 2
    assert "a sweep needs distributed: pip install 'kronline[lab]'" in capsys.readouterr().err
