"""Five machines, one model: a fault is found while it happens, and drawn.

    python examples/machines.py                # machines.png: the readings, and how odd they were

Each machine swings at a pace of its own, which nobody tells the model. From event 2,500 on, one of
them loses its rhythm: its values stay where they always were, and only their order is wrong.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from kronline import stream

MACHINES, EVENTS, FAULT, BROKEN = 5, 3000, 2500, 3


def readings(seed=0):
    """Temperature and load of every machine, (events, machines)."""
    rng = np.random.default_rng(seed)
    t, pace = np.arange(EVENTS)[:, None], rng.uniform(0.15, 0.5, MACHINES)
    swing = np.sin(t * pace)
    hot = 60 + 8 * swing + rng.normal(0, 0.4, swing.shape)
    load = 0.5 + 0.3 * np.sin(t * pace + 1) + rng.normal(0, 0.02, swing.shape)
    order = FAULT + rng.permutation(EVENTS - FAULT)  # the same readings, shuffled
    hot[FAULT:, BROKEN], load[FAULT:, BROKEN] = hot[order, BROKEN], load[order, BROKEN]
    return hot, load


def watch(hot, load):
    """How surprising every event was, (events, machines); the model learns all the while."""
    model = stream.AnomalyDetector()
    surprise = np.zeros(hot.shape)
    for t in range(EVENTS):
        events = [{"hot": hot[t, m], "load": load[t, m]} for m in range(MACHINES)]
        surprise[t] = [model.surprise_one(x, key=m) for m, x in enumerate(events)]
        model.learn_many(events, keys=range(MACHINES))
        if t % 500 == 499:
            print(f"{t + 1} of {EVENTS} events of {MACHINES} machines")
    return surprise


def found(surprise, over=20):
    """The machine and the event at which the mean of the last surprises leaves the usual."""
    smooth = np.array([surprise[t - over : t].mean(0) for t in range(over, len(surprise) + 1)])
    usual = smooth[1000 - over : FAULT - over]
    limit = usual.mean(0) + 6 * usual.std(0)
    late = smooth[FAULT - over + 1 :] > limit
    first = np.where(late.any(0), late.argmax(0), EVENTS)
    return int(first.argmin()), FAULT + int(first.min()), int(late.any(0).sum())


def draw(hot, surprise, machine, event, file):
    figure, axes = plt.subplots(MACHINES, 2, figsize=(9, 7), sharex=True, layout="constrained")
    show = slice(FAULT - 200, FAULT + 200)
    for m, (left, right) in enumerate(axes):
        colour = "tab:red" if m == BROKEN else "tab:blue"
        left.plot(np.arange(EVENTS)[show], hot[show, m], lw=0.8, color=colour)
        right.plot(np.arange(EVENTS)[show], surprise[show, m], lw=0.8, color=colour)
        right.set_ylim(-4, 40)
        left.set_ylabel(f"machine {m}")
        for ax in (left, right):
            ax.axvline(FAULT, color="grey", lw=0.8, ls=":")
        if m == machine:
            right.axvline(event, color="black", lw=0.8)
            right.text(event - 6, 30, f"found at event {event:,}", ha="right", fontsize=8)
    axes[BROKEN, 0].text(FAULT + 6, hot[:, BROKEN].max() + 1, "the fault begins", fontsize=8)
    axes[BROKEN, 0].set_ylim(top=hot[:, BROKEN].max() + 5)
    axes[0, 0].set_title("temperature")
    axes[0, 1].set_title("surprise, nats per feature")
    for ax in axes[-1]:
        ax.set_xlabel("event")
    figure.savefig(file, dpi=110)


def main():
    hot, load = readings()
    surprise = watch(hot, load)
    machine, event, machines = found(surprise)
    print(f"machine {machine} is odd since event {event}; machines found odd: {machines}")
    file = sys.argv[1] if len(sys.argv) > 1 else "machines.png"
    draw(hot, surprise, machine, event, file)
    print(f"drawn in {file}")
    return machine, event, machines


if __name__ == "__main__":
    main()
