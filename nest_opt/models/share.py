"""What one rank has of a microbatch: sizes and degrees that costs are derived for."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from nest_opt.problem import Configuration

Attention = Literal["flash", "stored", "recomputed"]


@dataclass(frozen=True, kw_only=True)
class Share:
    """A microbatch and how it is split over the ranks of a block.

    Attributes
    ----------
    microbatch, sequence_length
        Sequences in a microbatch of each data stream, tokens of a sequence.
    configuration
        Degrees tp, ep and whether sequence parallelism is on (cp must be 1).
    capacity
        Routed tokens computed over routed tokens: padding and imbalance.
    dropout
        Whether attention output and MLP output pass dropout, whose masks are
        kept (1 byte an element).
    attention
        "flash": scores are never stored; "stored": they are kept for the
        backward pass; "recomputed": they are computed again (selective
        recomputation).
    element_bytes
        Bytes of an activation and weight element of a `linear` stack.
    """

    microbatch: int
    sequence_length: int
    configuration: Configuration
    capacity: Fraction = Fraction(1)
    dropout: bool = False
    attention: Attention = "flash"
    element_bytes: int = 2

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return self.configuration.tp

    @property
    def ep(self) -> int:
        """Expert-parallel degree."""
        return self.configuration.ep

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch."""
        return self.microbatch * self.sequence_length

    @property
    def sequence_tokens(self) -> Fraction:
        """Tokens of which a rank holds what tensor parallelism does not split."""
        return Fraction(self.tokens, self.tp if self.configuration.sp else 1)
