"""Nothing is remembered: with a window of k steps this is TBPTT-k."""

from dataclasses import dataclass
from typing import Literal, final

from jaxtyping import Array, Float

from kronline.linearised import Structure
from kronline.noise import Noise
from kronline.show import called
from kronline.traces.base import Read, Steps, Trace


@final
@dataclass(frozen=True)
class Nothing(Trace[tuple[()]]):
    """`G ≈ 0`: ignores all that lies before the window: biased. For any cell.

    Example:
        >>> import kronline as kl
        >>> kl.Online(kl.Nothing(), window=5).name
        'tbptt(5)'
    """

    def spec(self, window: int | Literal["all"] | None) -> str:
        """BPTT, TBPTT-k, or the newest step alone."""
        if window == "all":
            return "bptt()"
        return "immediate()" if window == 1 else called("tbptt", window)

    def ignores(self, structure: Structure) -> str:
        """The past."""
        return "all that lies before the window"

    @property
    def remembers(self) -> bool:
        """No."""
        return False

    def init(self, structure: Structure) -> tuple[()]:
        """No memory."""
        return ()

    def segment(
        self,
        memory: tuple[()],
        steps: Steps,
        noise: Noise,
        delta: Float[Array, " N"],
        read: Read,
    ) -> tuple[None, tuple[()]]:
        """No gradient, no memory."""
        return None, memory

    def pull(self, memory: tuple[()], delta: Float[Array, " N"]) -> None:
        """`δ·0`: no gradient."""
        return None
