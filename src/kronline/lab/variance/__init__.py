"""The paper's section 5.3: how near gradient estimates come to the exact gradient."""

from kronline.lab.variance.run import continue_, main
from kronline.lab.variance.settings import Variance

__all__ = ["Variance", "continue_", "main"]
