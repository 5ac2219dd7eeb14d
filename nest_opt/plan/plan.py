"""The plan file: a placement in words, with the problem that it solves."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nest_opt.errors import PlanError
from nest_opt.plan.placement import ListedMap, Placement, PlanOrder, ends_and_order
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.base import Degree, Flag, Frozen, Identifier, Positive
from nest_opt.problem.cluster import MAX_DEVICES
from nest_opt.problem.job import Objective
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import Schedule, ScheduleName
from nest_opt.problem.zero import ZeroValue, zero_of, zero_value

DeviceNumber = Annotated[int, Field(strict=True, ge=0, lt=MAX_DEVICES)]


class PlanStage(Frozen):
    """One stage: its layers, in the listed order, and its recomputation mode.

    `chunks` are the numbers of layers of each of its chunks, in a plan of
    schedule `interleaved`. `tp` and `sp` are the stage's own where they differ from the plan's.
    `devices` lists the block of each replica, in the order of ranks, in a
    plan of order `listed`.
    """

    layers: tuple[Identifier, ...] = Field(min_length=1)
    recompute: Recompute
    chunks: tuple[Positive, ...] | None = None
    tp: Degree | None = None
    sp: Flag | None = None
    devices: tuple[tuple[DeviceNumber, ...], ...] | None = None


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
    zero: ZeroValue = 0
    schedule: ScheduleName = "1f1b"
    order: PlanOrder
    pitch: Degree | None = None
    stages: tuple[PlanStage, ...] = Field(min_length=1)
    objective: ClaimedValue | None = None

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The intra-layer configuration of each stage."""
        return tuple(
            Configuration(
                self.tp if stage.tp is None else stage.tp,
                self.cp,
                self.ep,
                self.sp if stage.sp is None else stage.sp,
            )
            for stage in self.stages
        )

    @model_validator(mode="after")
    def _validate(self) -> "Plan":
        listed = self.order == "listed"
        if listed == (self.pitch is not None):
            found, wanted = ("listed", "none") if listed else (self.order, "one")
            raise ValueError(
                f"pitch: found {self.pitch or 'none'} with order {found}, {wanted} is needed: "
                f"{'remove it' if listed else 'add it'}"
            )
        self._check_chunks()
        for number, (stage, k) in enumerate(zip(self.stages, self.configurations, strict=True)):
            if listed != (stage.devices is not None):
                raise ValueError(
                    f"stages[{number}].devices: {'missing' if listed else 'found'} in a plan of "
                    f"order {self.order}, they belong to order listed: "
                    f"{'add them' if listed else 'remove them, or change the order'}"
                )
            shape = [len(block) for block in stage.devices or ()]
            if listed and shape != [k.block_size] * self.dp:
                raise ValueError(
                    f"stages[{number}].devices: found blocks of {shape} devices, {self.dp} (dp) "
                    f"of {k.block_size} (tp * cp * ep) are needed: correct them"
                )
        return self

    def _check_chunks(self) -> None:
        """Refuse numbers of layers that are not those of equally many chunks a stage."""
        interleaved = self.schedule == "interleaved"
        first = self.stages[0].chunks
        for number, stage in enumerate(self.stages):
            place = f"stages[{number}].chunks"
            if interleaved != (stage.chunks is not None):
                raise ValueError(
                    f"{place}: {'missing' if interleaved else 'found'} in a plan of schedule "
                    f"{self.schedule}, they belong to interleaved: "
                    f"{'add them' if interleaved else 'remove them, or change the schedule'}"
                )
            if stage.chunks is None or first is None:
                continue
            if len(stage.chunks) < 2 or len(stage.chunks) != len(first):
                raise ValueError(
                    f"{place}: found {len(stage.chunks)}, 2 or more, the same number for all "
                    "stages, are needed: correct them"
                )
            if sum(stage.chunks) != len(stage.layers):
                raise ValueError(
                    f"{place}: found {sum(stage.chunks)} layers in all, the stage has "
                    f"{len(stage.layers)}: correct them"
                )

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.schedule, len(self.stages[0].chunks or (1,)))

    def _chunks(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield (stage, layers) of every chunk, in the order of layers."""
        parts = []
        for stage in self.stages:
            ends = list(accumulate(stage.chunks or (len(stage.layers),)))
            parts.append([stage.layers[a:b] for a, b in zip((0, *ends), ends, strict=False)])
        for chunk in range(self._schedule.chunks):
            yield from ((stage, part[chunk]) for stage, part in enumerate(parts))

    def placement(self) -> Placement:
        """Return the decisions alone.

        Raises
        ------
        PlanError
            If the stages do not hold every layer once; where the search space has
            the listed order alone, if they do not cut that into intervals.
        """
        if self.problem.search.layer_order == "listed":
            ends, order = self._listed_ends(), None
        else:
            ends, order = self._ends_and_order()
        return Placement(
            self.microbatch,
            self.configurations,
            self.dp,
            self.order,
            self.pitch or 0,
            ends,
            tuple(stage.recompute for stage in self.stages),
            ListedMap(tuple(stage.devices or () for stage in self.stages))
            if self.order == "listed"
            else None,
            zero_of(self.zero),
            self._schedule,
            order,
        )

    def _listed_ends(self) -> tuple[int, ...]:
        """Return the stages' ends in the listed order."""
        ids = self.problem.model.ids
        index, place = self.problem.model.index, 0
        ends: list[int] = []
        for number, layers in self._chunks():
            for name in layers:
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
        return tuple(ends)

    def _ends_and_order(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Return the stages' ends and the order of layers, any topological one."""
        ids, index = self.problem.model.ids, self.problem.model.index
        stage_of: dict[str, int] = {}
        for number, stage in enumerate(self.stages):
            for before, name in zip((None, *stage.layers), stage.layers, strict=False):
                if name not in index:
                    raise PlanError(
                        f"stages[{number}]: names layer {name!r}, which the problem does not "
                        "have: use the ids in problem.model.layers"
                    )
                if name in stage_of:
                    raise PlanError(
                        f"stages[{number}]: found layer {name!r}, which is in "
                        f"stages[{stage_of[name]}] already: stages must hold every layer once"
                    )
                if before is not None and index[before] > index[name]:
                    raise PlanError(
                        f"stages[{number}]: found layer {name!r} after {before!r}, the order of "
                        "problem.model.layers is needed inside a stage: list it first"
                    )
                stage_of[name] = number
        missing = [name for name in ids if name not in stage_of]
        if missing:
            raise PlanError(
                f"stages: found {len(stage_of)} layers, the problem has {len(ids)}: "
                f"add {missing[0]!r}" + (" and others" if len(missing) > 1 else "")
            )
        return ends_and_order([index[name] for name in stage.layers] for stage in self.stages)


def plan_from_placement(
    problem: Problem, placement: Placement, objective: Objective, value_ps: int
) -> Plan:
    """Return the plan file for a placement that was evaluated."""
    ids, first = problem.model.ids, placement.configurations[0]
    return Plan(
        problem=problem,
        microbatch=placement.microbatch,
        tp=first.tp,
        cp=first.cp,
        ep=first.ep,
        sp=first.sp,
        dp=placement.replicas,
        zero=zero_value(placement.zero),
        schedule=placement.schedule.name,
        order=placement.order,
        pitch=placement.pitch or None,
        stages=tuple(
            PlanStage(
                layers=tuple(ids[layer] for layer in layers),
                recompute=placement.recompute[number],
                chunks=tuple(high - low for low, high in chunks)
                if placement.schedule.is_interleaved
                else None,
                tp=None if k.tp == first.tp else k.tp,
                sp=None if k.sp == first.sp else k.sp,
                devices=placement.devices.devices[number] if placement.devices else None,
            )
            for number, (layers, chunks, k) in enumerate(
                zip(
                    placement.stage_layers,
                    placement.intervals,
                    placement.configurations,
                    strict=True,
                )
            )
        ),
        objective=ClaimedValue(name=objective, value_ps=str(value_ps)),
    )
