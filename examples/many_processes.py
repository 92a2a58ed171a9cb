"""One learner over many processes: the program is the same in all of them, and in one.

    python examples/many_processes.py

starts two of them on this machine. On several machines, start each by hand, with the address of the
first: `python examples/many_processes.py 10.0.0.1:8476 0 2` there, and `... 1 2` on the other.
"""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kronline as kl

LANES, STEPS = 8, 200


def symbols(lane):
    """The data of one lane: it depends on the lane's number, not on the process that reads it."""
    return np.random.default_rng(lane).integers(0, 2, STEPS + 1).cumsum() % 4


def main(coordinator, process, of):
    kl.processes.start(coordinator, process, of)
    layout = kl.Shard()  # lanes over all devices of all processes
    adam = optax.adam(1e-2)
    learner = kl.Learner(kl.RHN(16, 4), kl.softmax(4), kl.kf_rtrl(), adam, layout=layout)
    state = learner.init(jax.random.key(0), LANES)
    mine = layout.mine(LANES)  # the lanes that this process has data for
    data = np.stack([symbols(lane) for lane in range(mine.start, mine.stop)], axis=1)
    x, y = layout.join((data[:-1], data[1:]), axis=1)
    state, out = learner.run(state, x, y)  # one sum of gradients per update, over all processes
    mean = float(jnp.mean(out.loss))  # of all lanes
    own = layout.own(out.loss, axis=1)  # (steps, lanes of this process)
    print(f"process {process}: mean loss {mean:.5f}, of lanes {mine.start} to {mine.stop - 1}: ")
    print(np.round(own.mean(0), 4).tolist(), flush=True)
    kl.processes.stop()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        words = [sys.executable, __file__, "127.0.0.1:8476"]
        both = [subprocess.Popen([*words, str(i), "2"]) for i in (0, 1)]
        sys.exit(max(p.wait() for p in both))
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
