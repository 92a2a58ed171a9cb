"""The models of `kronline.stream` as river estimators; needs `pip install 'kronline[river]'`.

>>> from kronline import river  # doctest: +SKIP
>>> model = river.Regressor()  # doctest: +SKIP
"""

try:
    import river.base  # noqa: F401
except ImportError as e:
    raise ImportError(
        "kronline.river needs river, which is not installed; pip install 'kronline[river]'"
    ) from e

from kronline.river.anomaly import AnomalyDetector
from kronline.river.classifier import Classifier
from kronline.river.forecaster import Forecaster
from kronline.river.regressor import Regressor

__all__ = ["AnomalyDetector", "Classifier", "Forecaster", "Regressor"]
