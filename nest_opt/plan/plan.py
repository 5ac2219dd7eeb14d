"""The plan file: a placement in words, with the problem that it solves."""

from typing import Annotated, Literal

from pydantic import Field

from nest_opt.errors import PlanError
from nest_opt.plan.placement import MapOrder, Placement
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.base import Degree, Flag, Frozen, Identifier, Positive
from nest_opt.problem.job import Objective
from nest_opt.problem.profile import Recompute


class PlanStage(Frozen):
    """The layers of one stage, in the listed order, and its recomputation mode."""

    layers: tuple[Identifier, ...] = Field(min_length=1)
    recompute: Recompute


class ClaimedValue(Frozen):
    """The objective's value that whoever wrote the plan claims for it."""

    name: Objective
    value_ps: Annotated[str, Field(pattern=r"^[0-9]{1,40}$")]


class Plan(Frozen):
    """A plan, as a file carries it."""

    format: Literal["nest-opt-plan"] = "nest-opt-plan"
    version: Literal[1] = 1
    problem: Problem
    microbatch: Positive
    tp: Degree
    cp: Degree = 1
    ep: Degree = 1
    sp: Flag = False
    dp: Degree
    order: MapOrder
    pitch: Degree
    stages: tuple[PlanStage, ...] = Field(min_length=1)
    objective: ClaimedValue | None = None

    @property
    def configuration(self) -> Configuration:
        """The intra-layer configuration of all stages."""
        return Configuration(self.tp, self.cp, self.ep, self.sp)

    def placement(self) -> Placement:
        """Return the decisions alone.

        Raises
        ------
        PlanError
            If the stages do not cut the listed order of layers into intervals
            that hold every layer once.
        """
        ids = self.problem.model.ids
        index, ends, place = self.problem.model.index, [], 0
        for number, stage in enumerate(self.stages):
            for name in stage.layers:
                if name not in index:
                    raise PlanError(
                        f"stages[{number}]: names layer {name!r}, which the problem does not "
                        "have: use the ids in problem.model.layers"
                    )
                if place >= len(ids) or name != ids[place]:
                    expected = repr(ids[place]) if place < len(ids) else "no further layer"
                    raise PlanError(
                        f"stages[{number}]: found layer {name!r} where {expected} comes next in "
                        "problem.model.layers: stages must hold every layer once, in that order"
                    )
                place += 1
            ends.append(place)
        if place < len(ids):
            raise PlanError(
                f"stages: found {place} layers, the problem has {len(ids)}: "
                f"add {ids[place]!r} and those after it"
            )
        return Placement(
            self.microbatch,
            self.configuration,
            self.dp,
            self.order,
            self.pitch,
            tuple(ends),
            tuple(stage.recompute for stage in self.stages),
        )


def plan_from_placement(
    problem: Problem, placement: Placement, objective: Objective, value_ps: int
) -> Plan:
    """Return the plan file for a placement that was evaluated."""
    ids, k = problem.model.ids, placement.configuration
    return Plan(
        problem=problem,
        microbatch=placement.microbatch,
        tp=k.tp,
        cp=k.cp,
        ep=k.ep,
        sp=k.sp,
        dp=placement.replicas,
        order=placement.order,
        pitch=placement.pitch,
        stages=tuple(
            PlanStage(layers=ids[low:high], recompute=mode)
            for (low, high), mode in zip(placement.intervals, placement.recompute, strict=True)
        ),
        objective=ClaimedValue(name=objective, value_ps=str(value_ps)),
    )
