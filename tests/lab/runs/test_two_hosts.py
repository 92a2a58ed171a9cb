"""A run over two hosts: two network namespaces, joined by a cable that is cut in the middle."""

import os
import shutil
import subprocess
import sys

import pytest
from test_processes import same

from kronline import processes
from kronline.lab.runs import folder
from many import PATIENT, SOON, TRAIN, ended, lines, until
from running import command

HOSTS = ("kronline-a", "kronline-b")  # namespaces
ENDS = ("kronline-va", "kronline-vb")  # of the cable
ADDRESSES = ("10.203.77.1", "10.203.77.2")
COORDINATOR = f"{ADDRESSES[0]}:8476"


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def cable():
    """Two hosts and a cable; what cuts it."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` (iproute2) to make network namespaces with")
    try:
        commands = [
            *(f"netns add {host}" for host in HOSTS),
            f"link add {ENDS[0]} netns {HOSTS[0]} type veth peer name {ENDS[1]} netns {HOSTS[1]}",
            *(f"-n {host} link set lo up" for host in HOSTS),
            *(
                f"-n {host} addr add {address}/24 dev {end}"
                for host, address, end in zip(HOSTS, ADDRESSES, ENDS, strict=True)
            ),
            *(f"-n {host} link set {end} up" for host, end in zip(HOSTS, ENDS, strict=True)),
            f"netns exec {HOSTS[0]} true",
        ]
        for words in commands:
            if (done := ip(*words.split())).returncode:
                pytest.skip(f"may not make network namespaces: ip {words}: {done.stderr.strip()}")
        yield lambda: ip("-n", HOSTS[0], "link", "set", ENDS[0], "down")
    finally:
        for host in HOSTS:
            ip("netns", "del", host)


def on(number, *words):
    """A command on one of the hosts."""
    place = ["--coordinator", COORDINATOR, "--process", number, "--of", 2]
    python = [sys.executable, "-m", "kronline", *words, *place]
    return subprocess.Popen(
        ["ip", "netns", "exec", HOSTS[number], *map(str, python)],
        env=os.environ | PATIENT | SOON,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_hosts_and_a_cable_that_is_cut(cable, tmp_path):
    path, words = tmp_path / "run", ["train", *TRAIN, "--steps", 200]
    assert command(*words, "--out", tmp_path / "one") == 0
    both = [on(i, *words, "--out", path) for i in (0, 1)]
    until(both[0], lambda: lines(path) >= 3)
    cable()
    said = [ended(process, 120) for process in both]
    for (code, text), other in zip(said, ("process 1 of 2", "process 0"), strict=True):
        assert code == processes.LOST, text
        assert other in text
        assert f"go on with `kronline resume {path}`" in text
    assert f"process 0 listens on {COORDINATOR}" in said[0][1]  # what opens a port says so
    step = folder.read(path).status["step"]
    assert 0 < step < 200
    assert command("resume", path) == 0
    same(tmp_path / "one", path)
