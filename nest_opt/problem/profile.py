"""Profiles: what a layer costs for one microbatch size and configuration."""

from decimal import Decimal
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from nest_opt.problem.base import (
    Bytes,
    Count,
    Degree,
    Flag,
    Frozen,
    Identifier,
    Positive,
    Seconds,
)

Recompute = Literal["none", "full"]
RECOMPUTE_MODES: tuple[Recompute, ...] = ("none", "full")
Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]
Group = Literal["tp", "cp", "ep"]
GROUPS: tuple[Group, ...] = ("tp", "cp", "ep")


class Configuration(NamedTuple):
    """An intra-layer configuration k: the degrees of one block of devices.

    Ranks of a block are nested tp fastest, then cp, then ep.
    """

    tp: int
    cp: int = 1
    ep: int = 1
    sp: bool = False

    @property
    def block_size(self) -> int:
        """Devices of one stage of one replica."""
        return self.tp * self.cp * self.ep

    def degree(self, group: Group) -> int:
        """Return the number of ranks in one tp, cp or ep group."""
        return {"tp": self.tp, "cp": self.cp, "ep": self.ep}[group]

    def __str__(self) -> str:
        text = f"tp={self.tp} cp={self.cp} ep={self.ep}"
        return text + " sp" if self.sp else text


class Collective(Frozen):
    """`count` calls of one collective in one phase of a layer, per microbatch.

    `bytes` is the full buffer, before it is split over the ranks. `hidden_s`
    are the seconds of each call that computation hides: only what exceeds them
    is charged.
    """

    operation: Operation
    group: Group
    phase: Literal["forward", "backward"]
    bytes: Bytes
    count: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 1
    hidden_s: Seconds = Decimal(0)


class Footprint(Frozen):
    """Bytes per rank of a layer under one recomputation mode.

    `stash_bytes` are kept per microbatch in flight, `work_bytes` is the peak
    beyond the stash while the layer runs.
    """

    stash_bytes: Bytes
    work_bytes: Bytes = 0


class Profile(Frozen):
    """Cost of a layer for one microbatch size and configuration, per rank.

    Times are seconds for one microbatch, without collectives. `recompute`
    maps each recomputation mode that the layer offers to its footprint. Under
    `full` the forward pass and its collectives run once more; that is added
    by the cost model, never written in the profile. In a placement graph,
    `kind` says of which kind of devices the costs are; without it, of any.
    """

    microbatch: Positive
    tp: Degree = 1
    cp: Degree = 1
    ep: Degree = 1
    sp: Flag = False
    kind: Identifier | None = None
    forward_s: Seconds
    backward_input_s: Seconds
    backward_weight_s: Seconds
    dense_parameters: Count = 0
    expert_parameters: Count = 0
    collectives: tuple[Collective, ...] = ()
    recompute: dict[Recompute, Footprint]

    @property
    def configuration(self) -> Configuration:
        """The configuration that this profile is for."""
        return Configuration(self.tp, self.cp, self.ep, self.sp)

    @model_validator(mode="after")
    def _validate(self) -> "Profile":
        if not self.recompute:
            raise ValueError(
                "recompute: found no mode, at least 1 is needed: "
                'give the footprint of "none", "full" or both'
            )
        full, none = self.recompute.get("full"), self.recompute.get("none")
        if full and none and full.work_bytes < none.stash_bytes - full.stash_bytes:
            raise ValueError(
                f"recompute.full.work_bytes: found {full.work_bytes} bytes, at least "
                f"{none.stash_bytes - full.stash_bytes} bytes are needed (stash of none minus "
                "stash of full): recomputing a layer brings its whole stash back"
            )
        return self
