"""The dimensions of a configuration that can be changed one at a time: one table.

A dimension that `problem.search` gains needs a line here, and no more: what is
held, what is searched, what moves with it and what is said of it come from the
table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import pitches
from nest_opt.plan.placement import Placement
from nest_opt.problem import Problem
from nest_opt.problem.search import PITCHES, SearchSpace

# Values of dimensions by name: those that a configuration is held at.
Held: TypeAlias = Mapping[str, Any]
BOUNDARIES, RECOMPUTE = "boundaries", "recompute"


def _is_equal(_: Costs, __: Placement, found: Any, value: Any) -> bool:
    return bool(found == value)


def _one(value: Any) -> tuple[Any, ...]:
    return (value,)


def _shared(values: Iterable[Any]) -> Any:
    """Return the value that all stages share, or their values stage by stage."""
    found = tuple(values)
    return found[0] if len(set(found)) == 1 else found


def _text(value: Any, text: Callable[[Any], str] = str) -> str:
    return "/".join(map(text, value)) if isinstance(value, tuple) else text(value)


def _flag_text(value: Any) -> str:
    return _text(value, lambda flag: "on" if flag else "off")


@dataclass(frozen=True)
class Dimension:
    """What can be changed of a configuration.

    Attributes
    ----------
    name
        That of the field of `problem.search`, if it has one.
    value
        The value that a placement of a problem has.
    searched
        The values that a search is given to hold it at a value; None where
        `problem.search` has no such field.
    text
        A value in words.
    is_at
        Whether a placement, of which `value` is found, is at another value.
    scales
        Whether the devices used are a multiple of it: two such can be traded.
    takes_along
        Dimensions whose values mean nothing any more once it changes.
    may_take_along
        Dimensions that change with it where no layer has profiles otherwise.
    """

    name: str
    value: Callable[[Costs, Placement], Any]
    searched: Callable[[Any], tuple[Any, ...]] | None = _one
    text: Callable[[Any], str] = _text
    is_at: Callable[[Costs, Placement, Any, Any], bool] = _is_equal
    scales: bool = False
    takes_along: tuple[str, ...] = ()
    may_take_along: tuple[str, ...] = ()

    def matches(self, costs: Costs, placement: Placement, value: Any) -> bool:
        """Whether a placement is at a value."""
        return self.is_at(costs, placement, self.value(costs, placement), value)


def _modes_searched(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(value)))


def _modes_text(value: tuple[str, ...]) -> str:
    """Return the mode that all stages share, or runs of modes from the first stage on."""
    runs = [(mode, len(list(run))) for mode, run in groupby(value)]
    if len(runs) == 1:
        return value[0]
    return ", ".join(f"{count} {mode}" for mode, count in runs)


def _modes_match(_: Costs, __: Placement, found: Any, value: Any) -> bool:
    """Whether modes stage by stage are those: one mode stands for itself in every stage."""
    if len(set(value)) == 1:
        return set(found) == set(value)
    return bool(found == value)


def _pitch(costs: Costs, placement: Placement) -> str | None:
    """Return the first kind of pitch that the device map has, None if it is outside the family."""
    if not placement.is_uniform:
        return None
    return next((kind for kind in PITCHES if _has_pitch(costs, placement, None, kind)), None)


def _has_pitch(costs: Costs, placement: Placement, _: Any, kind: Any) -> bool:
    """Whether the pitch of a kind is a placement's; one replica (or stage) takes no step."""
    size, count = placement.configurations[0].block_size, placement.replicas
    unit = size * placement.stages
    if placement.order == "dp-inner":
        unit, count = size * placement.replicas, placement.stages
    found = pitches(
        costs.network.group_sizes,
        costs.problem.cluster.device_count,
        unit,
        count,
        SearchSpace(pitch=(kind,)),
    )
    legal = kind in costs.problem.search.pitch
    return legal and (placement.pitch in found or (count == 1 and bool(found)))


def _zero_expert(costs: Costs, placement: Placement) -> int | None:
    """Return the level of experts, None where it is the dense parameters' whatever that is."""
    problem = costs.problem
    follows = problem.search.zero_expert is None or not problem.has_experts
    return None if follows else placement.zero.expert


def _chunks(_: Costs, placement: Placement) -> int | None:
    """Return the chunks of each stage, None unless they are interleaved."""
    return placement.schedule.chunks if placement.schedule.is_interleaved else None


def _layers_text(ends: tuple[int, ...]) -> str:
    """Return the number of layers of each stage, runs of equal ones in short."""
    counts = [high - low for low, high in zip((0, *ends), ends, strict=False)]
    runs = [(count, len(list(run))) for count, run in groupby(counts)]
    return "/".join(f"{times}x{count}" if times > 1 else str(count) for count, times in runs)


DIMENSIONS: tuple[Dimension, ...] = (
    Dimension("microbatch", lambda _, p: p.microbatch),
    Dimension(
        "tp",
        lambda _, p: _shared(k.tp for k in p.configurations),
        scales=True,
        may_take_along=("sp",),
    ),
    Dimension("cp", lambda _, p: p.configurations[0].cp, scales=True),
    Dimension("ep", lambda _, p: p.configurations[0].ep, scales=True),
    Dimension("sp", lambda _, p: _shared(k.sp for k in p.configurations), text=_flag_text),
    Dimension("dp", lambda _, p: p.replicas, scales=True),
    Dimension("pp", lambda _, p: p.stages, scales=True, takes_along=(BOUNDARIES,)),
    Dimension("zero", lambda _, p: p.zero.dense),
    Dimension("zero_expert", _zero_expert),
    Dimension("zero_instances", lambda _, p: p.zero.instances if p.zero else None),
    Dimension("schedule", lambda _, p: p.schedule.name, takes_along=("chunks", BOUNDARIES)),
    Dimension("chunks", _chunks, takes_along=(BOUNDARIES,)),
    Dimension(
        RECOMPUTE,
        lambda _, p: p.recompute,
        searched=_modes_searched,
        text=_modes_text,
        is_at=_modes_match,
    ),
    Dimension("order", lambda _, p: p.order),
    Dimension("pitch", _pitch, is_at=_has_pitch),
    Dimension(BOUNDARIES, lambda _, p: p.ends, searched=None, text=_layers_text),
)
BY_NAME = {dimension.name: dimension for dimension in DIMENSIONS}
# What may differ by stage is no value of a dimension, but what values there are; so is
# the order of layers, of which the listed one alone is looked at.
NOT_CHANGED = ("per_stage", "layer_order")


@dataclass(frozen=True)
class Move:
    """A dimension that differs between two placements; `before` and `after` are its values."""

    dimension: str
    before: Any
    after: Any

    def __str__(self) -> str:
        text = BY_NAME[self.dimension].text
        if self.before is None:
            # Nothing was sharded, or interleaved: there were no runs, or chunks.
            return f"{self.dimension} {text(self.after)}"
        return f"{self.dimension} {text(self.before)} -> {text(self.after)}"


def moves(costs: Costs, before: Held, after: Placement) -> tuple[Move, ...]:
    """Return what differs between values of dimensions and a placement, in the table's order.

    A dimension of which the placement has no value is left out: the kind of
    pitch of stages that differ in size, the chunks of none that are interleaved,
    the runs of replicas where nothing is sharded.
    """
    return tuple(
        Move(each.name, before[each.name], value)
        for each in DIMENSIONS
        if each.name in before and not each.matches(costs, after, before[each.name])
        for value in (each.value(costs, after),)
        if value is not None
    )


def values_of(costs: Costs, placement: Placement) -> dict[str, Any]:
    """Return the value of every dimension that a placement has."""
    return {each.name: each.value(costs, placement) for each in DIMENSIONS}


def held_after(costs: Costs, held: Held, placement: Placement) -> dict[str, Any]:
    """Return the values that what was held has in a placement; a value it is still at stays."""
    changed = {move.dimension: move.after for move in moves(costs, held, placement)}
    return {**held, **changed}


def known_values(problem: Problem, name: str) -> tuple[Any, ...]:
    """Return the values that a problem's search space has of a dimension, whatever the others.

    Nothing of a dimension that is left open and has no range.

    Raises
    ------
    InstanceError
        If the search space has no profiles at all.
    """
    columns = ("microbatch", "tp", "cp", "ep", "sp")
    if name in columns:
        rows = ((microbatch, *k) for microbatch, k in problem.candidates)
        return tuple(sorted({row[columns.index(name)] for row in rows}))
    asked: tuple[Any, ...] | None = getattr(problem.search, name)
    if asked is None:
        most = {"pp": len(problem.model.ids), "dp": problem.cluster.device_count}
        return tuple(range(1, most.get(name, 0) + 1))
    if name == RECOMPUTE:
        return tuple(mode for mode in asked if _is_offered(problem, mode))
    return asked


def _is_offered(problem: Problem, mode: Any) -> bool:
    """Whether all layers have a recomputation mode with some degrees of the search space."""
    return any(
        all(mode in kind.by_key[pair].recompute for kind in problem.model.used_types)
        for pair in problem.candidates
    )
