"""The plan file of a placement graph: which layers are on which device, with the problem."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from nest_opt.errors import PlanError
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.plan.plan import ClaimedValue
from nest_opt.problem import Problem
from nest_opt.problem.base import Frozen, Identifier
from nest_opt.problem.cluster import MAX_DEVICES


class GraphPlanStage(Frozen):
    """The layers on one device."""

    device: Annotated[int, Field(strict=True, ge=0, lt=MAX_DEVICES)]
    layers: tuple[Identifier, ...] = Field(min_length=1)


class GraphPlan(Frozen):
    """A plan of a placement graph, as a file carries it."""

    format: Literal["nest-opt-plan"] = "nest-opt-plan"
    version: Literal[1] = 1
    problem: Problem
    stages: tuple[GraphPlanStage, ...] = Field(min_length=1)
    objective: ClaimedValue | None = None

    @model_validator(mode="after")
    def _validate(self) -> "GraphPlan":
        if not self.problem.is_placement_graph:
            raise ValueError(
                f"problem.job.transfer: found {self.problem.job.transfer!r}, 'sender-once' is "
                "needed: plans of pipelines have degrees and rank orders"
            )
        return self

    def placement(self) -> GraphPlacement:
        """Return the decisions alone.

        Raises
        ------
        PlanError
            If a stage names a layer that the problem does not have.
        """
        index = self.problem.model.index
        for number, stage in enumerate(self.stages):
            for name in stage.layers:
                if name not in index:
                    raise PlanError(
                        f"stages[{number}]: names layer {name!r}, which the problem does not "
                        "have: use the ids in problem.model.layers"
                    )
        return GraphPlacement(
            tuple(
                GraphStage(stage.device, tuple(sorted(index[name] for name in stage.layers)))
                for stage in self.stages
            )
        )


def graph_plan_from_placement(
    problem: Problem, placement: GraphPlacement, value_ps: int
) -> GraphPlan:
    """Return the plan file for a placement that was evaluated."""
    ids = problem.model.ids
    return GraphPlan(
        problem=problem,
        stages=tuple(
            GraphPlanStage(device=stage.device, layers=tuple(ids[layer] for layer in stage.layers))
            for stage in placement.stages
        ),
        objective=ClaimedValue(name="bottleneck", value_ps=str(value_ps)),
    )
