"""Killed at any moment, a stream ends as if it had not been; more by tests/learn_kills.py."""

import json
import subprocess
import sys

import learn_kills
from kronline.lab.learn import checkpoints, journal
from kronline.lab.runs import folder


def test_kills_leave_no_trace(tmp_path):
    found = learn_kills.torture(5, tmp_path, say=lambda line: None)
    assert found["differ"] == [], found
    assert found["kills"] == 5 and found["inside"]["commit"] + found["inside"]["checkpoint"] >= 2
    data = (tmp_path / "data.jsonl").read_text().splitlines()
    out = [
        json.loads(line)["line"] for line in (tmp_path / "broken.jsonl").read_text().splitlines()
    ]
    aside = (tmp_path / "broken" / "rejected.jsonl").read_text().splitlines()
    bad = [json.loads(line)["line"] for line in aside]
    assert sorted(out + bad) == list(range(1, len(data) + 1))  # each exactly once
    assert not folder.in_use(tmp_path / "broken")


def test_a_difference_is_found(tmp_path):
    """The comparison can fail: another seed is another stream."""
    data = tmp_path / "data.jsonl"
    learn_kills.events(data, 40)
    for name, seed in (("one", 0), ("two", 1)):
        words = learn_kills.command(tmp_path, data, name, 20, 8, ("--set", f"seed={seed}"))
        subprocess.run([sys.executable, "-m", "kronline", *words], check=True)
    odd = learn_kills.differ(tmp_path, "one", "two")
    assert "predictions" in odd and "journal" in odd and "journal.sqlite" in odd
    assert any(name.endswith(".safetensors") for name in odd)


def test_files_that_were_half_written_are_swept_away(tmp_path):
    data = tmp_path / "data.jsonl"
    learn_kills.events(data, 40)
    words = learn_kills.command(tmp_path, data, "one", 20, 8)
    whole = [sys.executable, "-m", "kronline", *words]
    subprocess.run(whole, check=True)
    left = tmp_path / "one" / checkpoints.FOLDER / ".line-000000000060.safetensors.123"
    left.write_bytes(b"half")
    other = left.with_name("line-000000000010.safetensors")  # its .json was taken away already
    other.write_bytes(b"whole")
    (tmp_path / "one" / f".{journal.FILE}.tidy").write_bytes(b"half")
    subprocess.run(whole, check=True)
    assert not left.exists() and not other.exists()
    assert not list((tmp_path / "one").glob(".*"))
