"""Profiles: what a layer costs for one microbatch size and configuration."""

from decimal import Decimal
from itertools import combinations
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

Recompute = Literal["none", "selective", "full"]
# In the order of F: each mode repeats at least what the one before it does.
RECOMPUTE_MODES: tuple[Recompute, ...] = ("none", "selective", "full")
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
    are the seconds of each call that computation, or waiting for the host, hides:
    only what exceeds them is charged.
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
    beyond the stash while the layer runs. `repeated_forward_s` is the part of
    the forward pass that `selective` runs again; no other mode has it.
    """

    stash_bytes: Bytes
    work_bytes: Bytes = 0
    repeated_forward_s: Seconds | None = None


class Profile(Frozen):
    """Cost of a layer for one microbatch size and configuration, per rank.

    Times are seconds for one microbatch, without collectives. `recompute`
    maps each recomputation mode that the layer offers to its footprint. Under
    `full` the forward pass and its collectives run once more; that is added
    by the cost model, never written in the profile. Under `selective` a part
    of the layer without collectives does, for the seconds that its footprint
    says (Korthikanti et al., arXiv:2205.05198, section 5: the attention core).
    In a placement graph, `kind` says of which kind of devices the costs are;
    without it, of any. `tied_parameters` of the dense ones are a copy of the
    first layer's: the last layer alone has any.
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
    tied_parameters: Count = 0
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
                'give the footprint of one or more of "none", "selective" and "full"'
            )
        offered = [mode for mode in RECOMPUTE_MODES if mode in self.recompute]
        for less, more in combinations(offered, 2):
            dropped = self.recompute[less].stash_bytes - self.recompute[more].stash_bytes
            if self.recompute[more].work_bytes < dropped:
                raise ValueError(
                    f"recompute.{more}.work_bytes: found {self.recompute[more].work_bytes} bytes, "
                    f"at least {dropped} bytes are needed (stash of {less} minus stash of "
                    f"{more}): recomputing a layer brings back what it did not keep"
                )
        if self.tied_parameters > self.dense_parameters:
            raise ValueError(
                f"tied_parameters: found {self.tied_parameters}, at most dense_parameters "
                f"({self.dense_parameters}) is allowed: tied parameters are part of the dense "
                "ones; correct one of the two"
            )
        for mode in offered:
            self._check_repeated(mode, self.recompute[mode].repeated_forward_s)
        return self

    def _check_repeated(self, mode: Recompute, repeated_s: Decimal | None) -> None:
        """Refuse a repeated time where none belongs, and one that makes a mode cost more than full.

        The search takes the first mode that fits for the one of least time.
        """
        place = f"recompute.{mode}.repeated_forward_s"
        if mode == "selective":
            if repeated_s is None:
                raise ValueError(
                    f"{place}: found nothing, the seconds of the forward pass that run again are "
                    "needed: add them"
                )
            if repeated_s > self.forward_s:
                raise ValueError(
                    f"{place}: found {repeated_s} s, at most forward_s ({self.forward_s} s) is "
                    "allowed: selective recomputation repeats a part of the forward pass"
                )
        elif repeated_s is not None:
            raise ValueError(
                f"{place}: found {repeated_s} s, selective alone has it (none repeats nothing, "
                "full everything): leave it out"
            )
