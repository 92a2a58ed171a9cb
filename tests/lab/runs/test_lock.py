"""A folder is held by one process, also where hosts share nothing but the file system."""

import json
import os
import subprocess
import sys
import time

import pytest

from kronline.errors import UsageError
from kronline.lab.runs import lock, member

AWAY = {"host": "elsewhere", "boot": "1", "pid": 4711, "since": "2020-01-01T00:00:00+00:00"}


def held_by(path, age, **record):
    """As if a process of another host held the folder, and had been seen so many seconds ago."""
    (path / lock.LOCK).touch()
    file = path / lock.HOLDER
    file.write_text(json.dumps(AWAY | {"id": "theirs"} | record))
    then = time.time() - age
    os.utime(file, (then, then))


def hold(path, then, host="here", more=""):
    """A process that holds the folder, which has nothing but the file system in common with us."""
    code = (
        "import sys, time, socket, pathlib\n"
        f"socket.gethostname = lambda: {host!r}\n"
        "from kronline.lab.runs import lock\n"
        f"lock.fcntl = None\n{more}\n"
        f"with lock.locked(pathlib.Path({str(path)!r})):\n"
        f"    print('held', flush=True)\n    {then}\n"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)


def test_it_says_who_holds_it(tmp_path):
    with lock.locked(tmp_path) as held:
        found = lock.holder(tmp_path)
        assert found["pid"] == os.getpid()
        assert found["id"] == held.id
        held.tell(stop=15)
        assert lock.holder(tmp_path) == found | {"stop": 15}
        with (
            pytest.raises(UsageError, match=rf"pid {os.getpid()} on {found['host']}, since 20\d\d"),
            lock.locked(tmp_path),
        ):
            pass
    assert lock.holder(tmp_path) is None
    assert sorted(f.name for f in tmp_path.iterdir()) == [lock.LOCK]


def test_a_killed_process_of_this_host_lets_go_at_once(tmp_path):
    with lock.locked(tmp_path):
        left = (tmp_path / lock.HOLDER).read_text()
    (tmp_path / lock.HOLDER).write_text(left)  # nobody took it away, and it is a moment old
    assert not lock.in_use(tmp_path)
    with lock.locked(tmp_path) as held:
        assert lock.holder(tmp_path)["id"] == held.id


def test_a_holder_on_another_host_is_believed_while_it_gives_signs_of_life(tmp_path):
    held_by(tmp_path, age=lock.STALE / 2)
    assert lock.in_use(tmp_path)
    message = "pid 4711 on elsewhere, since 2020-01-01.*gone lets go after 60 s"
    with pytest.raises(UsageError, match=message), lock.locked(tmp_path):
        pass
    assert lock.holder(tmp_path)["id"] == "theirs"
    held_by(tmp_path, age=2 * lock.STALE)
    assert not lock.in_use(tmp_path)
    with lock.locked(tmp_path) as held:
        assert lock.holder(tmp_path)["id"] == held.id


def test_a_record_that_was_cut_off_ends_with_its_time(tmp_path):
    held_by(tmp_path, age=0)
    (tmp_path / lock.HOLDER).write_text("")
    with pytest.raises(UsageError, match="another process works on"), lock.locked(tmp_path):
        pass
    os.utime(tmp_path / lock.HOLDER, (0, 0))
    with lock.locked(tmp_path):
        assert lock.holder(tmp_path)["pid"] == os.getpid()


@pytest.mark.parametrize("stale", [False, True])
def test_of_hosts_that_come_at_once_one_gets_it(tmp_path, stale):
    if stale:
        held_by(tmp_path, age=2 * lock.STALE)
    start = f"while time.time() < {time.time() + 3}: pass"
    hosts = [hold(tmp_path, "sys.stdin.read()", f"host{i}", start) for i in range(4)]
    first = {p: p.stdout.readline() for p in hosts}
    assert sorted(first.values()) == ["", "", "", "held\n"]
    for p in hosts:
        _, err = p.communicate(timeout=60)
        assert (p.returncode == 0) == (first[p] == "held\n"), err
        assert first[p] or "another process (pid" in err
    assert lock.holder(tmp_path) is None


def test_who_was_held_up_after_looking_takes_nothing_over(tmp_path, monkeypatch):
    held_by(tmp_path, age=2 * lock.STALE)
    real, others = lock._age, []

    def slow(file):
        age = real(file)
        if not others:  # another host takes over between our look and what we do
            others.append(hold(tmp_path, "sys.stdin.read()", "host1"))
            assert others[0].stdout.readline() == "held\n"
            monkeypatch.setattr(lock.os, "rename", None)  # the record may not be gone for a moment
            monkeypatch.setattr(lock.os, "replace", None)
        return age

    monkeypatch.setattr(lock, "_age", slow)
    with pytest.raises(UsageError, match="on host1, since"), lock.locked(tmp_path):
        pass
    assert lock.holder(tmp_path)["host"] == "host1"
    assert others[0].communicate(timeout=60)[1] == ""


def test_a_takeover_that_was_killed_is_not_for_ever(tmp_path):
    held_by(tmp_path, age=2 * lock.STALE)
    mark = tmp_path / f".{lock.HOLDER}.takeover"
    mark.touch()
    os.utime(mark, (0, 0))
    with lock.locked(tmp_path) as held:
        assert lock.holder(tmp_path)["id"] == held.id
    assert sorted(f.name for f in tmp_path.iterdir()) == [lock.LOCK]


def test_it_is_held_for_as_long_as_there_is_life_and_lost_for_good(tmp_path):
    holder = hold(tmp_path, "time.sleep(600)", more="lock.BEAT = 0.05")
    try:
        assert holder.stdout.readline() == "held\n"
        os.utime(tmp_path / lock.HOLDER, (0, 0))
        until = time.monotonic() + 60
        while not lock.in_use(tmp_path):  # the next sign of life
            assert time.monotonic() < until
        held_by(tmp_path, age=0)  # it was away for long, and another took over
        _, err = holder.communicate(timeout=60)
        assert holder.returncode == 2
        assert "taken over by pid 4711 on elsewhere" in err
        assert lock.holder(tmp_path)["id"] == "theirs"
    finally:
        holder.kill()


def test_workers_go_on_for_as_long_as_the_sweep_holds_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "STALE", 0.4)
    with lock.locked(tmp_path) as held:
        lease = member.Lease(tmp_path, held.id)
        assert lease.visible()
        assert not lease.over()
        time.sleep(1.5)  # asleep itself, as on a laptop that was shut: that is no silence
        monkeypatch.setattr(member, "LOOK", 0.05)
        assert not lease.over()
        while not lease.over():  # no sign of life: the next would come after BEAT seconds
            time.sleep(0.05)
        os.utime(tmp_path / lock.HOLDER)
        assert not lease.over()
        assert member.Lease(tmp_path, "of another sweep").over()
        held.tell(stop=15)
        assert lease.over()
    assert lease.over()


def test_hosts_that_share_no_files_are_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(member, "SHARED", 0.1)
    order = {"run": str(tmp_path / "no/run"), "sweep": str(tmp_path / "no"), "lease": "1"}
    came = member.work(order)
    assert came["code"] == member.REFUSED
    assert "on a file system that they share" in came["message"]
