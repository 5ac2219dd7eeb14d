"""The job: what is trained, how its bytes are counted, and what is minimised."""

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from nest_opt.problem.base import Exact, Flag, Frozen, Positive

Objective = Literal["fill-drain", "nest", "bottleneck"]
OBJECTIVES: tuple[Objective, ...] = ("fill-drain", "nest", "bottleneck")

_PerParameter = Annotated[Exact, Field(ge=0, le=64)]


class BytesPerParameter(Frozen):
    """Bytes per parameter of each part of the training state.

    16-bit weights and gradients with Adam in 32 bits are 2 + 2 + 12; with
    gradients kept in 32 bits, 2 + 4 + 12. `unsharded` is what else every copy of a
    parameter holds whole, under any ZeRO level, and never communicates: a second
    copy of gradients, for one.
    """

    weights: _PerParameter
    gradients: _PerParameter
    optimizer: _PerParameter
    unsharded: _PerParameter = Field(default=0, validate_default=True)

    @property
    def total(self) -> Fraction:
        """Bytes per parameter of all parts, exactly."""
        shared = Fraction(self.weights) + Fraction(self.gradients) + Fraction(self.optimizer)
        return shared + Fraction(self.unsharded)


class Job(Frozen):
    """Global batch G in sequences, byte convention, objective and cost model.

    With `pad`, a global batch that the data streams do not divide is filled
    up; without it such a degree is illegal. `transfer` is what becomes of a
    tensor that skips stages: each stage between passes it on (`relay`), or its
    sender pays for it once and so does each receiver (`sender-once`). The
    latter makes the problem a placement graph, of which `split` says whether
    its stages follow a topological order.
    """

    global_batch: Positive
    sequence_length: Positive | None = None
    bytes_per_parameter: BytesPerParameter
    objective: Objective = "fill-drain"
    transfer: Literal["relay", "sender-once"] = "relay"
    split: Literal["contiguous", "any"] = "contiguous"
    pad: Flag = False
    cost_model: Literal["default", "artifact"] = "default"
