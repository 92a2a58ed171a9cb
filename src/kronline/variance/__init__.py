"""The paper's section 5.3: how near gradient estimates come to the exact gradient."""

from kronline.variance.run import continue_, main
from kronline.variance.settings import Variance

__all__ = ["Variance", "continue_", "main"]
