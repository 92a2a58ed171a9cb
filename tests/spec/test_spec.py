"""A thing and the text that it is written as: all that the library has goes there and back."""

import dataclasses
import inspect
import sys

import numpy as np
import pytest

import kronline as kl
from kronline import cells, readout, regularise, spec, traces
from kronline.errors import UsageError
from kronline.estimators import methods

CELLS = {
    "RHN(64, 50)": kl.RHN(64, 50),
    "RHN(2, 3, activation='tanh')": kl.RHN(2, 3, activation="tanh"),
    "Tanh(2, 3, bias=False)": kl.Tanh(2, 3, bias=False),
    "LeakyTanh(2, 3)": kl.LeakyTanh(2, 3, 0.3),
    "LeakyTanh(2, 3, leak=1.0)": kl.LeakyTanh(2, 3, 1),
    "LSTM(2, 3, init_weights=Normal(std=1.0))": kl.LSTM(2, 3, init_weights=kl.Normal(1)),
    "GRU(2, 3)": kl.GRU(np.int64(2), 3),
    "LIF(2, 3, bias=False, threshold=0.5)": kl.LIF(2, 3, bias=False, threshold=0.5),
    "DeepRHN(2, 3)": kl.DeepRHN(2, 3, 2),
    "DeepRHN(2, 3, depth=3)": kl.DeepRHN(2, 3, 3),
    "ResetBeforeGRU(2, 3)": kl.ResetBeforeGRU(2, 3),
    "Stack((RHN(64, 50), LSTM(8, 64)))": kl.Stack([kl.RHN(64, 50), kl.LSTM(8, 64)]),
    "Stack((RHN(2, 3),))": kl.Stack((kl.RHN(2, 3),)),
    "Embedded(LSTM(64, 16), 10000)": kl.Embedded(kl.LSTM(64, 16), 10_000),
    "Embedded(Stack((GRU(2, 4), LowRank(Tanh(3, 2), 1))), 9, init_weights=Uniform(scale=0.5))": (
        kl.Embedded(
            kl.Stack((kl.GRU(2, 4), kl.LowRank(kl.Tanh(3, 2), 1))), 9, init_weights=kl.Uniform(0.5)
        )
    ),
    "LRU(2, 3, init_own=Ring(smallest=0.99))": kl.LRU(2, 3, init_own=kl.Ring(0.99)),
    "RTU(2, 3, activation='tanh')": kl.RTU(2, 3, activation="tanh"),
    "ELSTM(2, 3, bias=False)": kl.ELSTM(2, 3, bias=False),
    "MinLSTM(2, 3, init_weights=FanIn(scale=2.0))": kl.MinLSTM(2, 3, init_weights=kl.FanIn(2)),
    "Stack((Block(LRU(2, 3), width=4), Block(MinGRU(2, 4), glu=False)), see_input=True)": kl.Stack(
        (kl.Block(kl.LRU(2, 3), 4), kl.Block(kl.MinGRU(2, 4), glu=False)), see_input=True
    ),
    "LowRank(RHN(256, 50), 16)": kl.LowRank(kl.RHN(256, 50), 16),
    "Opaque(GRU(3, 2))": kl.Opaque(kl.GRU(3, 2)),
    "RHN(64, 4, init_weights=gate_bias(Orthogonal(), t=-1.0), sparse=Blocks(0.25, seed=3))": kl.RHN(
        64, 4, sparse=kl.Blocks(0.25, seed=3), init_weights=kl.gate_bias(kl.Orthogonal(), t=-1)
    ),
}
INITIALISERS = {
    "Normal()": kl.Normal(),
    "Normal(std=0.5)": kl.Normal(0.5),
    "Uniform()": kl.Uniform(),
    "Orthogonal(scale=2.0)": kl.Orthogonal(2),
    "Spectral(radius=0.5, inputs=0.1)": kl.Spectral(0.5, 0.1),
    "gate_bias(f=1.0, i=-0.5)": kl.gate_bias(i=-0.5, f=1),
    "gate_bias(gate_bias(Uniform(), f=1.0), o=2.0)": kl.gate_bias(
        kl.gate_bias(kl.Uniform(), f=1.0), o=2.0
    ),
    "GateBias(Normal(), (('o', 1.0), ('f', 2.0)))": cells.GateBias(
        kl.Normal(), (("o", 1.0), ("f", 2.0))
    ),
}
ESTIMATORS = {
    "artbp(0.3, 4, every=3)": kl.artbp(0.3, 4),
    "artbp(0.1, 50, every=1)": kl.artbp(0.1, 50, every=1),
    "bptt()": kl.bptt(),
    "dni(5)": kl.dni(),
    "dni(2)": kl.dni(2),
    "immediate()": kl.immediate(),
    "kf_rtrl()": kl.kf_rtrl(),
    "kf_rtrl(window=1)": kl.kf_rtrl(1),
    "kf_rtrl(window=3)": kl.Online(kl.KF(), window=3),
    "kf_rtrl(window='all')": kl.Online(kl.KF(), window="all"),
    "kf_rtrl(copies=2)": kl.kf_rtrl(copies=2),
    "kf_rtrl(window=2, copies=3)": kl.Online(kl.Average(kl.KF(), 3), 2),
    "kf_tbptt(25, pairs=8)": kl.kf_tbptt(25),
    "kf_tbptt(10, pairs=1)": kl.kf_tbptt(pairs=1),
    "kf_tbptt(10, pairs=8, tail='auto')": kl.kf_tbptt(tail="auto"),
    "kf_tbptt(2, pairs=2, tail=0.0)": kl.kf_tbptt(2, 2, 0),
    "ok(1)": kl.ok(),
    "ok(4, window=2)": kl.ok(4, window=2),
    "reservoir(0.9)": kl.reservoir(),
    "reservoir(1.0, input_scale=0.123456789)": kl.reservoir(1, 0.123456789),
    "reservoir(None)": kl.reservoir(None),
    "reverse_kf()": kl.reverse_kf(),
    "reverse_kf(window=2)": kl.reverse_kf(2),
    "rflo()": kl.rflo(),
    "rflo(window=1)": kl.rflo(1),
    "rolling_tbptt(4)": kl.rolling_tbptt(4),
    "rolling_tbptt(4, every=2)": kl.rolling_tbptt(4, every=2),
    "rtrl()": kl.rtrl(),
    "rtrl(window='all')": kl.rtrl("all"),
    "snap(1)": kl.snap(),
    "snap(2, window=1)": kl.snap(2, 1),
    "spatial(10)": kl.spatial(10),
    "Online(InLayer())": kl.Online(kl.InLayer()),
    "tbptt(25)": kl.tbptt(25),
    "uoro()": kl.uoro(),
    "uoro(copies=2, window=1)": kl.uoro(2, 1),
    "Online(KFTBPTT(pairs=2))": kl.Online(kl.KFTBPTT(2)),
    "Online(KFTBPTT(tail='auto'), window='all')": kl.Online(kl.KFTBPTT(1, "auto"), "all"),
    "Online(Average(UORO(copies=2), 3))": kl.Online(kl.Average(kl.UORO(2), 3)),
    "Online(Average(KF(), 1))": kl.Online(kl.Average(kl.KF(), 1)),
    "Online(Average(Average(OK(pairs=2), 3), 2), window=4)": kl.Online(
        kl.Average(kl.Average(kl.OK(2), 3), 2), 4
    ),
}
READOUTS = {
    "softmax(50)": kl.softmax(50),
    "softmax(2, std=1.0)": kl.softmax(2, std=1),
    "linear(1)": kl.linear(1),
    "Readout(3, squared_error)": kl.Readout(3, readout.squared_error),
    "Readout(3, cross_entropy, std=0.5)": kl.Readout(3, readout.cross_entropy, "any", 0.5),
}
LAYOUTS = {
    "Vmap()": kl.Vmap(),
    "Loop()": kl.Loop(),
    "Shard()": kl.Shard(),
    "Shard(devices=2, inner=Loop())": kl.Shard(2, kl.Loop()),
}
REGULARISERS = {
    "row_norm(1.0)": regularise.row_norm(1),
    "spectral(0.5)": regularise.spectral(0.5),
    "activation(0.01)": regularise.activation(0.01),
    "noise(0.1)": regularise.noise(0.1),
}
ALL = {
    "cell": CELLS,
    "initialiser": INITIALISERS,
    "estimator": ESTIMATORS,
    "readout": READOUTS,
    "layout": LAYOUTS,
    "regulariser": REGULARISERS,
}
EACH = [(kind, text) for kind, some in ALL.items() for text in some]


@pytest.mark.parametrize(("kind", "text"), EACH)
def test_there_and_back(kind, text):
    thing = ALL[kind][text]
    assert spec.show(thing) == text
    assert spec.parse(text, kind) == thing


def test_all_of_the_library_is_here():
    """Whatever is added to the library is to be written and read, too."""
    written = " ".join(text for _, text in EACH)
    names = {name for kind, some in spec.KINDS.items() if kind != "optimiser"
             for name in (*some.known, *some.inside, *some.functions)}  # fmt: skip
    shown = {name for name in names if f"{name}(" in written or f" {name}" in written}
    # written by the name of a method
    by_method = {"Exact", "Nothing", "RFLO", "ReverseKF", "SnAp"}
    assert names - shown == by_method
    assert set(methods.__all__) < names
    for module in (cells, traces):
        public = [getattr(module, name) for name in module.__all__]
        own = [c for c in public if isinstance(c, type) and dataclasses.is_dataclass(c)]
        concrete = {c.__name__ for c in own if not inspect.isabstract(c)}
        assert concrete - {"Weight"} <= names


@pytest.mark.parametrize("trace", [t for t in spec.KINDS["estimator"].inside if t != "Average"])
@pytest.mark.parametrize("window", [None, 1, 3, "all"])
def test_every_trace_with_every_window(trace, window):
    if (trace, window) == ("Nothing", None):
        return
    for made in (getattr(kl, trace)(), kl.Average(getattr(kl, trace)(), 2)):
        estimator = kl.Online(made, window)
        assert spec.parse(spec.show(estimator), "estimator") == estimator
        parts = f"Online({spec.show(made)}, window={window!r})"
        assert spec.parse(parts, "estimator") == estimator
        assert spec.canonical(parts, "estimator") == estimator.name


@pytest.mark.parametrize(
    ("kind", "text", "canonical"),
    [
        ("estimator", "tbptt(1)", "immediate()"),
        ("estimator", " tbptt( k=25 ) ", "tbptt(25)"),
        ("estimator", "Online(Nothing, window='all')", "bptt()"),
        ("estimator", "kf_rtrl", "kf_rtrl()"),
        ("readout", "Readout(3, cross_entropy, 'symbols')", "softmax(3)"),
        ("cell", "Stack(RHN(2, 3), Tanh(2, 2))", "Stack((RHN(2, 3), Tanh(2, 2)))"),
        ("cell", "RHN(2, 3, init_weights=Uniform)", "RHN(2, 3, init_weights=Uniform())"),
        ("estimator", "mine.py:method(3)", "mine.py:method(3)"),  # is not imported
        ("estimator", "kf_rtlr", "kf_rtlr"),
    ],
)
def test_one_text_for_one_thing(kind, text, canonical):
    assert spec.canonical(text, kind) == canonical


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("RHN", kl.RHN(64, 5)),
        ("DeepRHN(depth=3)", kl.DeepRHN(64, 5, 3)),
        ("LowRank(RHN, 16)", kl.LowRank(kl.RHN(64, 5), 16)),
        ("Opaque(GRU)", kl.Opaque(kl.GRU(64, 5))),
        ("Stack(RHN, LSTM)", kl.Stack((kl.RHN(64, 5), kl.LSTM(64, 64)))),
        ("Stack((RHN, LSTM))", kl.Stack((kl.RHN(64, 5), kl.LSTM(64, 64)))),
        ("Embedded(LSTM, 16)", kl.Embedded(kl.LSTM(64, 16), 5)),
        (
            "Embedded(Stack(RHN(sparse=Blocks(0.5)), LowRank(cell=GRU, rank=4)), 3)",
            kl.Embedded(
                kl.Stack(
                    (kl.RHN(64, 3, sparse=kl.Blocks(0.5)), kl.LowRank(kl.GRU(64, 64), rank=4))
                ),
                5,
            ),
        ),
    ],
)
def test_sizes_are_filled_in(text, cell):
    assert spec.parse(text, "cell", 64, 5) == cell


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("cell", "RNH", r"cell must be one of .*RHN.*, got 'RNH'; did you mean 'RHN'\?"),
        ("cell", "RHN(64, 4)", r"too many .*; needed RHN\(hidden, inputs.*hidden = 64.*leave"),
        ("cell", "RHN(depth=2)", r"'depth'; needed RHN\(hidden, inputs, \*, bias=True, .*\)"),
        ("cell", "RHN(init_weights=Blocks(0.2))", r"initialiser such as Normal\(0.1\), got Blocks"),
        ("cell", "RHN(init_weights=gate_bias(3, f=1.0))", r"gate_bias needs an initialiser"),
        ("cell", "RHN(sparse=Uniform())", r"needs sparse=Blocks\(density\) or None"),
        ("cell", "Stack()", "Stack needs at least one layer"),
        ("cell", "Stack(3, RHN)", "Stack needs cells .* got int"),
        ("cell", "Stack(Opaque(GRU), RHN)", "Stack needs cells .* got Opaque"),
        ("cell", "Stack(RHN, LTSM)", "got 'LTSM'; did you mean 'LSTM'"),
        ("cell", "Embedded(LSTM)", r"needed Embedded\(CELL, NUMBERS\)"),
        ("cell", "Embedded(LSTM, 'a')", "LSTM needs inputs >= 1, an integer, got 'a'"),
        ("cell", "Opaque(3)", r"Opaque needs a cell such as GRU\(64, 4\), got 3"),
        ("cell", "kf_rtrl()", "cell must be one of"),
        ("estimator", "tbptt", r"missing .*'k'; needed tbptt\(k\)"),
        ("estimator", "tbptt(0)", "tbptt needs k >= 1"),
        ("estimator", "kf_rtlr", "did you mean 'kf_rtrl'"),
        ("estimator", "Online(3)", r"Online needs a trace such as KF\(\), got 3"),
        ("estimator", "Online(Average(3, 2))", "Average needs a trace"),
        ("estimator", "Online(Nothing)", r"use tbptt\(k\) or bptt\(\)"),
        ("estimator", "Online(RHN(2, 3))", "estimator's argument must be one of KF"),
        ("readout", "sofmax(3)", "did you mean 'softmax'"),
        ("readout", "Readout(3, mine)", "must be NAME"),
        ("layout", "Vmap(3)", r"needed Vmap\(\)"),
        ("regulariser", "row_norm(-1)", "positive number, got -1"),
        ("optimiser", "adm", "did you mean 'adam"),
    ],
)
def test_what_is_wrong_is_explained(kind, text, why):
    sizes = {"cell": (64, 5), "optimiser": (1e-3,)}.get(kind, ())
    with pytest.raises(UsageError, match=why):
        spec.parse(text, kind, *sizes)


@pytest.mark.parametrize(
    "text",
    [
        "", "RHN(", "RHN(2, 3); 1", "RHN(2, 3) + 1", "(lambda: RHN)()", "RHN(*(2, 3))",
        "RHN(2, __import__('os').getpid())", "RHN(2, 1 + 2)", "cells.RHN(2, 3)", "[RHN]",
        "os:getcwd()", "RHN(2, [x for x in (3,)][0])", "RHN(" * 500,
    ],
)  # fmt: skip
def test_nothing_is_run(text):
    with pytest.raises(UsageError, match=r"must be|'\*'"):
        spec.parse(text, "cell")


def test_a_users_own_is_imported_only_where_it_was_typed(tmp_path):
    place = tmp_path / "a folder (of mine)"
    place.mkdir()
    file = place / "typed_by_a_user.py"
    file.write_text(
        "import kronline as kl\n"
        "class Mine(kl.Tanh): pass\n"
        "class Around(kl.Opaque): pass\n"
        "ready = kl.kf_rtrl(1)\n"
    )
    with pytest.raises(UsageError, match="must be NAME"):
        spec.parse(f"{file}:Mine(2, 3)", "cell")
    assert "typed_by_a_user" not in sys.modules
    made = spec.given(f"{file}:Mine(bias=False)", "cell", 2, 3)
    assert (made.hidden, made.inputs, made.bias) == (2, 3, False)
    assert spec.show(made) == "typed_by_a_user.Mine(2, 3, bias=False)"
    around = spec.given(f"{file}:Around(GRU)", "cell", 2, 3)
    assert spec.show(around) == "typed_by_a_user.Around(GRU(2, 3))"
    assert spec.given("typed_by_a_user:ready", "estimator") == kl.kf_rtrl(1)
    with pytest.raises(UsageError, match="could not be read"):
        spec.given(f"{file}:Yours", "cell")


@dataclasses.dataclass(frozen=True)
class KF(kl.Stepwise):
    """A user's own, which calls itself what the library's is called."""

    scale: float = 1.0
    init = step = pull = None

    def spec(self, window):
        return "kf_rtrl()"


def test_ones_own_is_not_taken_for_the_librarys():
    shown = spec.show(kl.Online(KF(2.0), window=1))
    assert shown == f"Online({__name__}.KF(scale=2.0), window=1)"
    with pytest.raises(UsageError):
        spec.parse(shown, "estimator")

    def cross_entropy(prediction, target):
        return prediction[target]

    assert f"{__name__}.test_" in spec.show(kl.Readout(3, cross_entropy, "symbols"))
