"""The verifier: right things hold, broken things fail, and it says so to people and programs."""

import json
import subprocess
import sys

import jax
import pytest

import broken
import kronline as kl
from kronline import native
from kronline.show import show
from kronline.verifier import enumeration as proofs
from kronline.verifier.report import Check, Report
from kronline.verifier.suite import CELLS, DEEP, DIAGONAL, jobs_for, run
from kronline.verifier.theorem import stops_growing

CELL = kl.Tanh(2, 2)


def failures(estimator, cell=CELL):
    return {c.name.split(",")[0] for c in kl.verify(cell, estimator).failed()}


def test_the_same_estimator_unbroken_holds():
    report = kl.verify(CELL, kl.kf_rtrl())
    assert report.ok
    assert len(report.checks) == 6


def test_a_p_that_depends_on_the_sign_fails():
    assert "bias of the gradient" in failures(kl.Online(broken.SignDependentP()))


def test_a_stale_H_fails():
    assert "bias of the gradient" in failures(kl.Online(broken.StaleH()))


def test_factors_started_from_noise_fail():
    failed = failures(kl.Online(broken.NoisyStart()))
    assert {"bias of the gradient", "the trace starts from zero"} <= failed


def test_signs_shared_by_lanes_fail():
    for estimator in (kl.kf_rtrl(), kl.uoro(window=2)):
        (check,) = proofs.independent(CELL, estimator, "tanh", broken.shared_signs)
        assert not check.ok


def test_a_learner_that_shares_signs_between_lanes_fails(monkeypatch):
    monkeypatch.setattr("kronline.learner.engine.for_lanes", broken.shared_signs)
    jax.clear_caches()
    with jax.enable_x64(True):
        checks = proofs.halves(CELL, kl.kf_rtrl(), "tanh")
    jax.clear_caches()
    assert [c.ok for c in checks] == [True, False]  # given noise is each lane's own, drawn is not


def test_copies_that_share_their_signs_fail():
    shared = kl.Online(broken.SharedCopies(kl.UORO(2)))
    with jax.enable_x64(True):
        (check,) = proofs.copies(kl.Tanh(2, 1), kl.uoro(), shared, 2, "tanh")
    assert check.name.startswith("2 copies")
    assert check.value == pytest.approx(1)  # the variance is not halved at all


def test_a_reset_that_is_missed_once_there_is_a_trace_fails():
    assert kl.verify(CELL, kl.kf_tbptt(2, 1)).ok
    failed = failures(kl.Online(broken.LateResetsIgnored(kl.KFTBPTT(1)), window=2))
    assert failed == {"bias of the gradient", "mean of the trace = G"}


@pytest.mark.parametrize("factor", [0.0, 1.1, float("nan")])
def test_a_wrong_closed_form_fails(factor):
    failed = failures(kl.Online(broken.WrongFormula(factor=factor)))
    names = {name.partition(" (")[0] for name in failed}
    assert names == {"one step's variance = closed form", "Var_t = Var[H G'] + E[added]"}


def test_where_there_is_no_noise_the_formula_and_the_variance_vanish():
    # four pairs hold all that a tanh network of two units can have
    with jax.enable_x64(True):
        *_, one_step, over_time = proofs.trace(CELL, kl.OK(4), "tanh", "ok(4)")
    assert one_step.ok and over_time.ok
    assert one_step.name == "one step's variance = closed form (both below 0.001 ‖G‖²)"


@pytest.mark.parametrize("tail", [0.0, 0.5, "auto"])
def test_a_tail_is_the_bias_that_it_says(tail):
    report = kl.verify(CELL, kl.kf_tbptt(2, 1, tail))
    assert report.ok
    said = [c.name.partition(",")[0] for c in report.checks]
    if tail == "auto":
        assert said == ["tail auto: distance to BPTT"]
    else:
        assert said == [f"bias of the gradient with {tail} of its past", "biased as stated"]


def test_several_at_a_time_are_reported_in_order():
    jobs = jobs_for(CELL, kl.kf_rtrl(), "tanh")
    assert run(jobs, threads=2) == run(jobs)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_truncation_is_a_bias(k):
    with jax.enable_x64(True):
        (check,) = proofs.exact(CELL, kl.tbptt(k), "tanh")
    assert not check.ok
    assert kl.verify(CELL, kl.tbptt(k)).ok  # it says so itself, and is what it says


def test_the_variance_grows_where_the_theorem_does_not_apply():
    # the control of the check on Theorem 1: with ‖H‖ > 1 it fails
    with jax.enable_x64(True):
        assert stops_growing(norm=1.02) > 2


def test_what_cannot_be_enumerated_is_refused():
    with pytest.raises(ValueError, match="smaller cell"):
        kl.verify(kl.RHN(16, 2), kl.uoro())
    with pytest.raises(TypeError, match="opaque"):
        kl.verify(kl.Opaque(CELL), kl.kf_rtrl())


def test_nothing_is_not_a_proof_and_nan_does_not_hold():
    assert not Report().ok
    check = Check("a", "b", "c", float("nan"), 1.0)
    assert not check.ok
    assert json.loads(Report([check]).json())["checks"][0]["value"] is None


def test_the_default_set_from_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "kronline", "verify", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert set(report["checks"][0]) == {"name", "cell", "estimator", "value", "limit", "ok"}
    assert all(c["ok"] for c in report["checks"])
    cells = {show(cell) for cell in CELLS.values()}
    assert {"Tanh(2, 2)", "Stack((RHN(2, 2), Tanh(1, 2)))"} < cells
    wanted = {
        "rtrl()": {"gradient = BPTT"},
        "kf_rtrl()": {"bias of the gradient", "one step's variance = closed form"},
        "uoro()": {"bias of the gradient", "one step's variance = closed form"},
    }
    everywhere = {"the trace starts", "mean of the trace", "Var_t"}
    for estimator in ("kf_rtrl()", "uoro()"):
        wanted[estimator] |= everywhere

    def proven(name, estimator):
        rows = [c for c in report["checks"] if c["name"].startswith(name)]
        return {c["cell"] for c in rows if c["estimator"] == estimator}

    for estimator, names in wanted.items():
        for name in names:
            assert proven(name, estimator) >= cells
    diagonal = {show(cell) for cell in DIAGONAL.values()}
    two, three = (show(DEEP[name]) for name in ("two blocks", "three blocks"))
    assert proven("gradient = BPTT", "rtrl()") >= {*diagonal, two, three}
    assert proven("cheap = dense RTRL", "rtrl()") == diagonal
    assert proven("gradient = definition", "spatial(2)") == {two}
    assert proven("biased as stated", "spatial(2)") == {two}
    assert two in proven("bias of the gradient", "kf_tbptt(2, pairs=1)")
    unbiased = {c["estimator"] for c in report["checks"] if "bias of" in c["name"]}
    assert {"kf_rtrl()", "kf_rtrl(copies=2)", "uoro()", "reverse_kf()"} <= unbiased
    assert {"ok(1)", "ok(2)", "kf_tbptt(2, pairs=1)", "kf_tbptt(2, pairs=2)"} <= unbiased
    noise = {c["estimator"] for c in report["checks"] if c["name"].endswith("= closed form")}
    assert {"ok(1)", "ok(2)", "ok(4)"} <= noise  # and there is noise to be compared
    said = [c["estimator"].partition("(")[0] for c in report["checks"] if "as stated" in c["name"]]
    biased = {"dni", "immediate", "reservoir", "rflo", "rolling_tbptt", "snap", "kf_tbptt"}
    assert biased <= set(said)
    if native.status().active:  # then both paths are proven
        assert "RHN(2, 2), pure JAX" in {c["cell"] for c in report["checks"]}
    limits = {c["name"].split(",")[0]: c["limit"] for c in report["checks"]}
    assert limits["gradient = BPTT"] == limits["bias of the gradient"] == 1e-10
    assert limits["one step's variance = closed form"] == 1e-8
    assert limits["Var_t = Var[H G'] + E[added]"] == 1e-8
    once = ("two lanes: correlation of their noise", "two lanes: half the variance",
            "2 copies: 1/2 of the variance", "‖H‖ <= 0.9: variance",
            "|exponent of Var(UORO)/Var(KF) in n − 1|")  # fmt: skip
    assert set(once) <= set(limits)
