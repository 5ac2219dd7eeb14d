"""What one rank has of a microbatch: sizes and degrees that costs are derived for."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.models.memory import PLAIN_MEMORY, MemoryRules
from nest_opt.problem import Configuration

Attention = Literal["flash", "stored"]
ContextParallel = Literal["ring", "all-gather"]


@dataclass(frozen=True, kw_only=True)
class Share:
    """A microbatch and how it is split over the ranks of a block.

    Attributes
    ----------
    microbatch, sequence_length
        Sequences in a microbatch of each data stream, tokens of a sequence.
    configuration
        Degrees tp, cp and ep, and whether sequence parallelism is on.
    context_parallel
        How a rank comes by the keys and values of the others: "ring" passes
        them on block by block while attention computes, "all-gather" collects
        them before it.
    capacity
        Tokens that experts compute over tokens routed to them: padding.
    imbalance
        Tokens routed to the busiest expert-parallel rank over the mean.
    dropout
        Whether attention output and MLP output pass dropout, whose masks are
        kept (1 byte an element).
    attention
        "flash": scores are never stored; "stored": they pass through memory
        and are kept for the backward pass, but for stages that recompute.
    element_bytes
        Bytes of an activation and weight element of a `linear` stack.
    memory
        What is kept where launchers differ.

    Raises
    ------
    InstanceError
        If context-parallel ranks cannot share a sequence evenly.
    """

    microbatch: int
    sequence_length: int
    configuration: Configuration
    context_parallel: ContextParallel = "ring"
    capacity: Fraction = Fraction(1)
    imbalance: Fraction = Fraction(1)
    dropout: bool = False
    attention: Attention = "flash"
    element_bytes: int = 2
    memory: MemoryRules = PLAIN_MEMORY

    def __post_init__(self) -> None:
        # Rank i has chunks i and 2 cp - 1 - i of a sequence: equal work under a causal mask.
        if self.cp > 1 and self.sequence_length % (2 * self.cp):
            raise InstanceError(
                f"cp: found {self.cp} context-parallel ranks for sequences of "
                f"{self.sequence_length} tokens, a multiple of {2 * self.cp} tokens is needed (two "
                "chunks for each rank): change cp or the sequence length"
            )

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return self.configuration.tp

    @property
    def cp(self) -> int:
        """Context-parallel degree."""
        return self.configuration.cp

    @property
    def ep(self) -> int:
        """Expert-parallel degree."""
        return self.configuration.ep

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch that a rank has: all but what other cp ranks have."""
        return self.microbatch * self.sequence_length // self.cp

    @property
    def sequence_tokens(self) -> Fraction:
        """Tokens of which a rank holds what tensor parallelism does not split."""
        return Fraction(self.tokens, self.tp if self.configuration.sp else 1)

    @property
    def expert_load(self) -> Fraction:
        """Tokens that the busiest rank's experts compute over those that a rank routes.

        One rank that has all experts is not busier than the mean, and none has
        more than all tokens of its group.
        """
        return self.capacity * min(self.imbalance, Fraction(self.ep))
