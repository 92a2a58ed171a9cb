"""`kronline sample`: text, written by a trained model."""

import json
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Float, Int, Key

from kronline import Learner
from kronline.errors import UsageError
from kronline.estimators import Params
from kronline.lab.runs.train import load
from kronline.lab.tasks.corpus import encode
from kronline.lab.tasks.text import TextTask


@dataclass(frozen=True)
class Sample:
    """Write text with a model that `kronline train text` trained.

    Try:
        kronline sample runs/text-kf-rtrl-n64-seed0 --prompt "The " --length 400
        kronline sample runs/text-kf-rtrl-n64-seed0 --temperature 0.7 --seed 3
    """

    run: tyro.conf.Positional[Path]  # its folder, as `kronline list` shows it
    prompt: str = "\n"  # what the model reads before it writes
    length: int = 500  # characters to write
    temperature: float = 1.0  # below 1: safer; above: wilder; 0: always the likeliest
    seed: int = 0  # of what is drawn: another seed, another text
    data: str | None = None  # where the text lies now, if it was moved
    json: bool = False  # print one JSON object instead of the text

    def __post_init__(self) -> None:
        if self.length < 1:
            raise UsageError(f"length must be >= 1, got {self.length}")
        if not self.temperature >= 0:
            raise UsageError(f"temperature must be >= 0, got {self.temperature}")
        if not self.prompt:
            raise UsageError("prompt needs at least one character")


def main(args: Sample) -> int:
    """Read the prompt, then write."""
    task, exp, params, step = load(args.run, args.data)
    if not isinstance(task, TextTask):
        raise UsageError(f"{args.run} did not learn a text; needed a run of `kronline train text`")
    symbols = exp.source.symbols
    prompt = encode(args.prompt, symbols, "the prompt", "; choose another --prompt")
    key = jax.random.key(args.seed)
    written = write(exp.learner, params, prompt, key, args.length, args.temperature)
    text = "".join(symbols[i] for i in np.asarray(written))
    if args.json:
        print(json.dumps(dict(run=str(args.run), step=step, prompt=args.prompt, text=text)))
    else:
        print(args.prompt + text)
    return 0


def write(
    learner: Learner,
    params: Params,
    prompt: Int[np.ndarray, " given"],
    key: Key[Array, ""],
    length: int,
    temperature: float,
) -> Int[Array, " length"]:
    """Symbols that the model draws after the prompt."""
    cell, readout = learner.cell, learner.readout
    assert readout is not None

    def read(s: Array, x: Array) -> tuple[Array, Float[Array, " symbols"]]:
        s = cell.step(params.cell, s, x)
        return s, readout.predict(params.readout, cell.output(s))

    def one(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
        s, logits = state
        likeliest = jnp.argmax(logits)
        drawn = jax.random.categorical(key, logits / max(temperature, 1e-6))
        x = (likeliest if temperature == 0 else drawn).astype(jnp.int32)
        return read(s, x), x

    @jax.jit
    def run(prompt: Array, keys: Array) -> Array:
        s = jnp.zeros(cell.size, jnp.dtype(learner.dtype))
        s, logits = jax.lax.scan(read, s, prompt)
        return jax.lax.scan(one, (s, logits[-1]), keys)[1]

    return run(jnp.asarray(prompt), jax.random.split(key, length))
