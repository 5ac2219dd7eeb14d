"""The search space: which degrees, modes and device maps a plan may choose among."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from nest_opt.problem.base import Degree, Flag, Frozen, Positive, first_repeated
from nest_opt.problem.profile import Configuration, Recompute
from nest_opt.problem.schedule import SCHEDULES, Schedule, ScheduleName
from nest_opt.problem.zero import Zero, ZeroLevel

Order = Literal["pp-inner", "dp-inner"]
ORDERS: tuple[Order, ...] = ("pp-inner", "dp-inner")
Pitch = Literal["tight", "level", "spread"]
PITCHES: tuple[Pitch, ...] = ("tight", "level", "spread")

PerStage = Literal["tp", "sp"]

LayerOrder = Literal["listed", "any"]
# v of an interleaved schedule; more chunks than layers are no plan.
Chunks = Annotated[int, Field(strict=True, ge=2, le=10**4)]

Degrees = Annotated[tuple[Degree, ...], Field(min_length=1)]


class SearchSpace(Frozen):
    """Values each dimension may take; None leaves it open.

    Open dimensions take what the layers have profiles for among these.
    `microbatch`: 1, 2, 4, 8. `tp`: powers of two that divide the heads and stay
    within the innermost network group. `ep`: divisors of the number of experts. `dp`, `pp`: every
    legal value. `pitch`: `tight` is the devices of one replica (or stage),
    `level` rounds that up to whole groups of each level, `spread` divides the
    devices evenly. `per_stage` names the degrees that may differ by stage.
    `zero` are the levels of ZeRO, one for all stages of a plan; `zero_expert` those of
    expert parameters, the same as the dense ones' where left open; `zero_instances`
    the runs of replicas that each hold all states. `schedule` are the pipeline
    schedules, and `chunks` the numbers of chunks of the interleaved one. `layer_order`
    says whether stages are intervals of the order in which layers are listed, or of
    any topological order.
    """

    microbatch: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    tp: Degrees | None = None
    cp: Degrees = (1,)
    ep: Degrees | None = None
    sp: Annotated[tuple[Flag, ...], Field(min_length=1)] = (False,)
    dp: Degrees | None = None
    pp: Degrees | None = None
    recompute: Annotated[tuple[Recompute, ...], Field(min_length=1)] = ("none", "selective", "full")
    order: Annotated[tuple[Order, ...], Field(min_length=1)] = ORDERS
    pitch: Annotated[tuple[Pitch, ...], Field(min_length=1)] = PITCHES
    per_stage: tuple[PerStage, ...] = ()
    zero: Annotated[tuple[ZeroLevel, ...], Field(min_length=1)] = (0,)
    zero_expert: Annotated[tuple[ZeroLevel, ...], Field(min_length=1)] | None = None
    zero_instances: Degrees = (1,)
    schedule: Annotated[tuple[ScheduleName, ...], Field(min_length=1)] = ("1f1b",)
    chunks: Annotated[tuple[Chunks, ...], Field(min_length=1)] = (2, 4, 8)
    layer_order: LayerOrder = "listed"

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules with their chunks, in the order of ties."""
        return tuple(
            Schedule(name, chunks)
            for name in SCHEDULES
            if name in self.schedule
            for chunks in (sorted(self.chunks) if name == "interleaved" else (1,))
        )

    def shared(self, k: Configuration) -> Configuration:
        """Return k with what may differ by stage left open: equal for all stages of a plan."""
        return Configuration(
            1 if "tp" in self.per_stage else k.tp,
            k.cp,
            k.ep,
            False if "sp" in self.per_stage else k.sp,
        )

    def sharding(self, experts: bool) -> tuple[Zero, ...]:
        """Return what may be sharded, each once and in the order of ties.

        Where nothing is sharded, runs of replicas make no difference, and
        without experts there is one level.
        """
        return tuple(
            sorted(
                {
                    Zero(dense, expert, instances if dense or expert else 1)
                    for dense in self.zero
                    for expert in ((self.zero_expert if experts else None) or (dense,))
                    for instances in self.zero_instances
                }
            )
        )

    @field_validator("*")
    @classmethod
    def _no_repeats(cls, values: Any) -> Any:
        repeated = first_repeated(values) if isinstance(values, tuple) else None
        if repeated is not None:
            raise ValueError(f"found the value {repeated!r} twice, once is allowed: remove one")
        return values
