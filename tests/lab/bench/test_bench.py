"""The bench times what it says: real processes, small sizes; no test asserts a time."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_cli import code

from kronline import native
from kronline.lab.bench import baseline, machine, plan, result, run
from kronline.lab.bench.work import SYMBOLS, Row, learner


def tiny(*rows, rounds=2):
    return plan.Turns("tiny", rows, rounds, seconds=0.001)


def small_exact(cell="ELSTM"):
    """The section of diagonal cells, small."""
    grown = replace(plan.exact_growth(cell, (4, 8), 2), rounds=2, seconds=0.001)
    return [grown, replace(plan.exact(cell, 8, 2, rounds=2), seconds=0.001)]


SOME = ("UORO", "forward")  # of the other methods


@pytest.fixture(scope="module")
def measured():
    kf = [Row("KF-RTRL", path, "RHN", 8, 2) for path in ("fast", "jax", "plain")]
    others = [Row(m, "fast", "LSTM", 4, 2) for m in SOME]
    too_large = Row("RTRL", "fast", "RHN", 100_000, 256)
    too_slow = Row("KF-RTRL", "fast", "RHN", 16_384, 1)
    broken = Row("no such method", "fast", "RHN", 8, 2)
    notes = []
    found = run.measure(
        [tiny(*kf, *others, too_large, too_slow, broken)], lambda units, _: notes.append(units)
    )
    return found, notes


def test_a_result_has_all_that_is_promised(measured):
    found, notes = measured
    assert sum(notes) == run.units([tiny(*range(6 + len(SOME)))])  # progress ends at 100 %
    assert json.loads(json.dumps(found)) == found
    assert found["matmul_gflops"] > 0 and found["copy_gbytes_per_s"] > 0
    assert [(r["method"], r["path"]) for r in found["rows"]] == [
        *(("KF-RTRL", path) for path in ("fast", "jax", "plain")),
        *((m, "fast") for m in SOME),
    ]
    for row in found["rows"]:
        assert row["us_per_step"] > 0 and row["bytes_per_lane"] is not None
        is_kf = row["method"] == "KF-RTRL"
        assert (row["gflops"] is not None) == (row["fraction_of_matmul"] is not None) == is_kf
    # 4 n³ per lane and step
    kf = found["rows"][0]
    assert kf["gflops"] == pytest.approx(4 * 8**3 * 2 / kf["us_per_step"] / 1e3, abs=0.051)


def test_a_device_is_measured_by_itself_in_one_process(monkeypatch):
    """As on a GPU or TPU: the limit is the device's own rate, by JAX; the CPU stands for it."""
    monkeypatch.setattr(machine, "SIZE", 128)
    kf, broken = Row("KF-RTRL", "fast", "RHN", 4, 2), Row("no such method", "fast", "RHN", 8, 2)
    here = run.Here(machine.Machine(host=False))
    found = run.measure([tiny(kf, broken)], lambda *_: None, here)
    assert found["matmul_by"] == "jax" and found["copy_gbytes_per_s"] > 0
    assert [row["fraction_of_matmul"] is not None for row in found["rows"]] == [True]
    assert [(row["method"], "no such method" in row["reason"]) for row in found["skipped"]] == [
        ("no such method", True)
    ]
    assert found["machine"]["device"] == jax.devices()[0].platform


def test_rows_that_cannot_run_are_listed_with_the_reason(measured):
    found, _ = measured
    reasons = {(r["method"], r["path"], r["hidden"]): r["reason"] for r in found["skipped"]}
    assert "GB are left" in reasons["RTRL", "fast", 100_000]
    assert "s per step" in reasons["KF-RTRL", "fast", 16_384]
    assert "method must be one of" in reasons["no such method", "fast", 8]


def test_an_old_result_is_compared_as_ratios(measured, tmp_path, capsys):
    new, _ = measured
    old = json.loads(json.dumps(new))
    for row in old["rows"]:
        row["us_per_step"] *= 3
        row["fraction_of_matmul"] = row["fraction_of_matmul"] and row["fraction_of_matmul"] / 2
    (tmp_path / "old.json").write_text(json.dumps(old))
    lines = result.compared(new, result.load(tmp_path / "old.json"))
    assert len(lines) == len(new["rows"])
    assert all(line["speedup"] == pytest.approx(3, rel=1e-3) for line in lines)
    result.show({**new, "compared": lines}, result.Console(width=120))
    assert "older result" in capsys.readouterr().out
    for text in ("", "{}", '{"rows": [1]}', "[]"):
        (tmp_path / "bad.json").write_text(text)
        assert code("bench", "--compare", str(tmp_path / "bad.json")) == 2
    assert code("bench", "--compare", str(tmp_path / "none.json")) == 2
    assert code("bench", "--quick", "--full") == 2
    assert "choose one" in capsys.readouterr().err


def test_the_whole_plan_has_the_rows_that_are_asked_for():
    rows = {row for turns in plan.whole(False, False) for row in turns.rows}
    for cell, n, lanes in [("RHN", 256, 32), ("RHN", 128, 64), ("RHN", 64, 64), ("LSTM", 128, 32)]:
        assert {Row("KF-RTRL", path, cell, n, lanes) for path in ("fast", "jax", "plain")} <= rows
    full = {row for turns in plan.whole(False, True) for row in turns.rows}
    grid = {(row.hidden, row.lanes) for row in full if row.path == "plain" and row.cell == "RHN"}
    assert grid == {(n, lanes) for n in (32, 64, 128, 256, 512) for lanes in (1, 16, 32, 64, 256)}


def test_diagonal_cells_are_timed_beside_tbptt_and_the_copy_rate(capsys):
    found = run.measure(small_exact(), lambda *_: None)
    assert not found["skipped"] and json.loads(json.dumps(found)) == found
    exact, tbptt = found["rows"]
    assert (exact["method"], tbptt["method"]) == ("RTRL", "TBPTT-25")
    assert exact["fraction_of_copy"] > 0 and tbptt["fraction_of_copy"] is None
    (cell,), (grown,) = found["exact"]["cells"], found["exact"]["growth"]
    # 51 rows, and one of the units' own: two gates of three count, one slot; float32, two lanes
    assert cell["trace_bytes"] == 4 * 2 * (51 + 1) * 2 * 8
    assert cell["parameters"] == (51 + 1) * 3 * 8
    assert grown["hidden"] == [4, 8] and grown["parameters"][1] == cell["parameters"]
    assert grown["memory_exponent"] > 0 and len(grown["fraction_of_copy"]) == 2
    old = json.loads(json.dumps(found))
    old["rows"][0]["fraction_of_copy"] /= 2
    first, second = result.compared(found, old)
    assert first["speedup_of_fraction"] == pytest.approx(2, rel=0.02)
    assert second["speedup_of_fraction"] is None
    result.show(found, result.Console(width=120))
    out = capsys.readouterr().out
    assert "of the time of TBPTT-25" in out and "time grows as parameters^" in out


def test_the_section_of_diagonal_cells_is_part_of_the_plan(capsys):
    section = plan.diagonal()
    assert section == run.planned(False, False, True)
    assert set(section) <= set(plan.whole(False, False))
    assert {row.cell for turns in section for row in turns.rows} == {"LRU", "RTU", "ELSTM"}
    assert code("bench", "--quick", "--diagonal") == 2
    assert "choose one" in capsys.readouterr().err


def test_the_baseline_is_printed(capsys):
    assert code("bench", "--show-baseline") == 0
    out = capsys.readouterr().out
    compile(out, "baseline", "exec")
    assert "def kf_rtrl" in out


@pytest.mark.parametrize("cell", ["RHN", "LSTM"])
def test_the_baseline_does_the_same_work(cell):
    """Its KF-RTRL step is ours: after one step of G = F both are exact; and its Jacobians agree."""
    jax.config.update("jax_numpy_rank_promotion", "allow")
    try:
        n, lanes = 5, 3
        carry = baseline.init(cell, n, lanes, SYMBOLS)
        rng = np.random.default_rng(0)
        x, y = (jnp.asarray(rng.integers(0, SYMBOLS, (1, lanes))) for _ in range(2))
        learn = replace(learner(Row("KF-RTRL", "fast", cell, n, lanes)), donate=False)
        state = learn.init(jax.random.key(0), lanes)
        params = state.params._replace(cell={"W": carry[0]["W"]}, readout={"V": carry[0]["V"]})
        new, out = learn.run(learn.start(params, jax.random.key(1), lanes), x, y)
        theirs, loss = baseline.kf_rtrl(cell, carry, x, y)
        assert np.allclose(loss, out.loss.mean(), rtol=1e-5)
        assert np.allclose(theirs[0]["W"], new.params.cell["W"], rtol=1e-5, atol=1e-7)
        # D, E: through random weights and states
        W = jnp.asarray(rng.standard_normal(carry[0]["W"].shape), jnp.float32)
        s = jnp.asarray(rng.standard_normal((1, learn.cell.size)), jnp.float32)
        lin = learn.cell.linearise({"W": W}, s[0], x[0, 0])
        feats = lin.groups["W"].feats[None]
        after, D, E = baseline.CELLS[cell](W, s, feats)
        for ours, other in ((lin.state, after), (lin.H.D, D), (lin.H.E, E)):
            assert np.allclose(ours, other[0], rtol=1e-5, atol=1e-6)
    finally:
        jax.config.update("jax_numpy_rank_promotion", "raise")


def test_info(capsys):
    assert code("info", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == ("native kernel" if native.status().active else "pure JAX")
    assert found["reason"]
    assert found["device"].startswith(jax.default_backend()) and found["backend"]
