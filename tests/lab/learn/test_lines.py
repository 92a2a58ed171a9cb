"""Lines and places: any chunks, any ends, any length."""

import os
import random
import threading

import pytest

from kronline.errors import UsageError
from kronline.lab.learn.lines import KEPT, POLL, Place, Source, looks_like


def read(path, limit=1000, follow=False):
    source = Source(path, limit, follow)
    found = []
    while (line := source.next()) is not None:
        found.append(line)
    source.close()
    return found


def test_every_byte_belongs_to_one_line(tmp_path):
    rng = random.Random(0)
    for _ in range(200):
        data = bytes(rng.choice(b'a{"\xff\r\n\n') for _ in range(rng.randrange(60)))
        file = tmp_path / "x"
        file.write_bytes(data)
        lines = read(file, limit=rng.choice([3, 1000]))
        want = data.split(b"\n")
        want = want[:-1] if want[-1] == b"" else want
        assert [line.number for line in lines] == list(range(1, len(want) + 1))
        places = [0, *(line.end for line in lines)]
        assert [line.start for line in lines] == places[:-1] and places[-1] == len(data)
        for line, text in zip(lines, want, strict=True):
            assert data[line.start : line.end].removesuffix(b"\n") == text
            if line.size <= 3:
                assert line.text == text.removesuffix(b"\r")


@pytest.mark.parametrize("limit", [5, 100_000])
def test_a_huge_line_is_cut_and_the_next_is_whole(tmp_path, limit):
    (tmp_path / "x").write_bytes(b"a" * 3_000_000 + b"\nnext\n" + b"b" * 200_000)
    first, second, third = read(tmp_path / "x", limit)
    assert first.text == b"a" * min(KEPT, limit) and first.size == 3_000_000
    assert second.text == b"next" and second.start == 3_000_001
    assert third.size == 200_000 and third.end == 3_200_006


def test_chunks_of_a_pipe_make_no_difference():
    data = b"one\r\ntwo\n" + b"x" * 5000 + b"\nthree"
    want = [(b"one", 3), (b"two", 3), (b"x" * 1000, 5000), (b"three", 5)]
    for chunk in (1, 7, 4096):
        out, inn = os.pipe()

        def feed(inn=inn, chunk=chunk):
            for i in range(0, len(data), chunk):
                os.write(inn, data[i : i + chunk])
            os.close(inn)

        threading.Thread(target=feed).start()
        source = Source(f"/dev/fd/{out}", 1000, False)
        found = []
        while (line := source.next(POLL)) is not None or not source.ended:
            if line is not None:
                found.append((line.text, line.size))
        assert found == want
        source.close()


def test_a_file_that_grows_is_followed_line_by_line(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"one\ntw")
    source = Source(file, 1000, True)
    assert source.next().text == b"one"
    assert source.next() is None and not source.ended
    with file.open("ab") as f:
        f.write(b"o\nthree")
    assert source.next().text == b"two"
    assert source.next() is None
    file.write_bytes(b"")
    with pytest.raises(UsageError, match="shorter"):
        source.next()
    file.unlink()
    with pytest.raises(UsageError, match="removed"):
        source.next()
    source.close()


def placed(path, count):
    source, place = Source(path, 1000, False), Place()
    for _ in range(count):
        place = place.moved(source.next())
    source.close()
    return place


def test_back_to_a_place_and_only_of_the_same_stream(tmp_path):
    file = tmp_path / "x"
    lines = [f"line {i}\n" for i in range(100)]
    file.write_text("".join(lines))
    for count in (0, 1, 63, 64, 65, 100):
        source = Source(file, 1000, False)
        source.go_to(placed(file, count))
        after = source.next()
        assert (after and after.text.decode() + "\n") == (lines[count] if count < 100 else None)
        source.close()
    known = placed(file, 80)
    for change, why in (({5: "other"}, "first"), ({79: "line X9\n"}, "line 80")):
        file.write_text("".join(change.get(i, line) for i, line in enumerate(lines)))
        source = Source(file, 1000, False)
        with pytest.raises(UsageError, match=why):
            source.go_to(known)
        source.close()
    file.write_text("".join(lines[:70]))
    source = Source(file, 1000, False)
    with pytest.raises(UsageError, match="shorter"):
        source.go_to(known)
    source.close()


def test_a_last_line_that_gets_its_end_later_is_the_same_line(tmp_path):
    file = tmp_path / "x"
    file.write_text("one\ntwo")
    known = placed(file, 2)
    file.write_text("one\ntwo\nthree\nfour\n")
    source = Source(file, 1000, False)
    source.go_to(known)
    line = source.next()
    assert (line.number, line.text) == (3, b"three")
    later = known.moved(line)
    source.close()
    source = Source(file, 1000, False)
    source.go_to(later)
    assert source.next().text == b"four"
    source.close()


def test_the_format_by_name_and_by_look(tmp_path):
    assert looks_like(b"a,b\n", tmp_path / "x.csv") == "csv"
    assert looks_like(b"a,b\n", tmp_path / "x.jsonl") == "json"
    assert looks_like(b'\xef\xbb\xbf {"a": 1}', tmp_path / "x") == "json"
    assert looks_like(b"a,b\n", tmp_path / "x") == "csv"
