"""Time per event of deep-river's recurrent regressors, on the events of `speed.py`, which calls it.

    .venv-deep/bin/python benchmarks/streams/speed_deep.py [--events 2000]

64 units, window 10 (its default), Adam, one thread; `predict_one`, then `learn_one`, without
scaling or anything else around the model. Prints percentiles in µs as JSON.
"""

import argparse
import json
import time

import numpy as np


def main() -> None:
    """From the command line."""
    import torch
    from deep_river import regression

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2000)
    events = parser.parse_args().events
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows, w = rng.normal(size=(1000, 10)), rng.normal(size=10)
    xs = [{f"f{i}": float(v) for i, v in enumerate(row)} for row in rows]
    ys = (rows @ w + rng.normal(size=1000)).tolist()
    found = {}
    for kind in ("LSTM", "RNN"):
        model = getattr(regression, f"{kind}Regressor")(
            n_features=10, hidden_size=64, window_size=10, optimizer_fn="adam", lr=1e-3, seed=0
        )
        times = np.empty(events + 200)
        for i in range(len(times)):
            start = time.perf_counter()
            model.predict_one(xs[i % 1000])
            model.learn_one(xs[i % 1000], ys[i % 1000])
            times[i] = time.perf_counter() - start
        p = np.percentile(1e6 * times[200:], (5, 50, 99)).round(1).tolist()
        found[f"deep-river {kind}"] = dict(zip(("p5", "median", "p99"), p, strict=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
