"""How the tests' programs are compiled, and how a user's are."""

import os
from importlib.metadata import version

# unknown flags end a process: XLA has the first one up to jaxlib 0.10, and no longer in 0.12
KNOWN = tuple(map(int, version("jaxlib").split(".")[:2])) <= (0, 10)
FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1" if KNOWN else ""
)
UNOPTIMISED = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def as_users_have_it():
    """The environment of a process that compiles as it would without the tests' settings."""
    env = {name: value for name, value in os.environ.items() if name != UNOPTIMISED}
    flags = env.pop("XLA_FLAGS", "").replace(FLAGS, "").strip()
    return env | ({"XLA_FLAGS": flags} if flags else {})
