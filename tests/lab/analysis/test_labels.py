"""What methods, rates and files are called."""

import pytest

from kronline.lab.analysis import labels
from kronline.lab.wording import short


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        ("kf_rtrl", "KF-RTRL"),
        ("kf_rtrl(window=1)", "KF-RTRL, window 1"),
        ("kf_rtrl(window=None)", "KF-RTRL"),
        ("uoro", "UORO"),
        ("uoro(copies=1)", "UORO"),
        ("uoro(copies=64)", "UORO-AVG (k = 64)"),
        ("uoro(4, window=1)", "UORO-AVG (k = 4), window 1"),
        ("uoro(copies=n)", "UORO-AVG (k = n)"),
        ("tbptt(25)", "TBPTT-25"),
        ("tbptt(k=25)", "TBPTT-25"),
        ("rtrl", "RTRL"),
        ("bptt", "BPTT"),
        ("kf_rtrl(copies=4)", "KF-RTRL-AVG (k = 4)"),
        ("kf_rtrl(1, 2)", "KF-RTRL-AVG (k = 2), window 1"),
        ("ok", "OK (r = 1)"),
        ("ok(4, window=1)", "OK (r = 4), window 1"),
        ("kf_tbptt", "KF-TBPTT-10, 8 pairs"),
        ("kf_tbptt(8, pairs=4)", "KF-TBPTT-8, 4 pairs"),
        ("kf_tbptt(k=25, pairs=1, tail=1)", "KF-TBPTT-25, 1 pair"),
        ("kf_tbptt(8, 4, tail='auto')", "KF-TBPTT-8, 4 pairs, tail auto"),
        ("reverse_kf(window=1)", "R-KF, window 1"),
        ("artbp(0.1, 50)", "ARTBP (c = 0.1, 50 steps)"),
        ("artbp(0.1, 50, every=4)", "ARTBP (c = 0.1, 50 steps), every 4"),
        ("rolling_tbptt(10)", "Rolling TBPTT-10"),
        ("snap", "SnAp-1"),
        ("snap(order=2)", "SnAp-2"),
        ("rflo", "RFLO"),
        ("immediate", "Immediate"),
        ("dni", "DNI-5"),
        ("reservoir", "Reservoir (ρ = 0.9)"),
        ("reservoir(None, 0.5)", "Reservoir, inputs × 0.5"),
        ("snap(1, 2, 3, 4)", "SNAP-1-2-3-4"),
        ("path/own.py:Mine(3)", "Mine(3)"),
        ("what is this?", "what is this?"),
    ],
)
def test_methods_are_called_as_in_the_paper(estimator, name):
    assert labels.method(estimator) == name


def test_learning_rates_are_written_as_powers():
    assert [labels.rate(10**p) for p in (-2.5, -3)] == ["10⁻²·⁵", "10⁻³"]
    assert labels.rate(0.002) == "0.002"


def test_long_names_are_cut():
    assert short("folder/book.txt") == "book.txt"
    assert len(short("x" * 200)) < 50
