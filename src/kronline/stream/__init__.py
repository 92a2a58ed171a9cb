"""Models that learn from a stream, one event at a time: recurrent, with credit beyond any window.

>>> from kronline import stream
>>> model = stream.Regressor()
>>> for t in range(5):
...     guess = model.predict_one({"hour": t % 24})
...     model = model.learn_one({"hour": t % 24}, float(t))
"""

import os

import jax

from kronline.stream.anomaly import AnomalyDetector
from kronline.stream.classifier import Classifier
from kronline.stream.file import load
from kronline.stream.forecaster import Forecaster
from kronline.stream.regressor import Regressor

# A program of microseconds is run by whoever calls it: handing it to another thread takes longer
# than the work. Without effect where JAX is at work already, or where the user has chosen.
if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
    jax.config.update("jax_cpu_enable_async_dispatch", False)

__all__ = ["AnomalyDetector", "Classifier", "Forecaster", "Regressor", "load"]
