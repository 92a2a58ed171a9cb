"""Settings for all tests.

Shapes that fit only by silent broadcasting are errors. Programs are compiled without optimisation:
the tests are many small programs, each run once.
"""

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)
