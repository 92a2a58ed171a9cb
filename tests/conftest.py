"""Settings for all tests, and for the processes that they start.

Shapes that fit only by silent broadcasting are errors. Programs are compiled without optimisation
(the tests are many small programs, each run once; `test_replay.py` looks at optimised ones, too),
and kept, so that the two workers and later runs need not compile them again.
"""

import os
from pathlib import Path

import jax

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "programs"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)
