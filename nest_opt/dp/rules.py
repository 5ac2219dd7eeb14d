"""The DP's face of each constraint, where it can be exact: what it forbids.

`RULES` maps a constraint's type to a function that returns a `Restriction`. A
type without a rule makes the DP's answer a relaxation, and the result says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import combinations
from typing import Any

from nest_opt.dp.occupancy import most_devices, most_replicas
from nest_opt.network import planned_levels
from nest_opt.plan.placement import DeviceMap, ListedMap
from nest_opt.problem import (
    AntiColocation,
    Colocation,
    Configuration,
    DegreeLimit,
    FailureDomains,
    ForbiddenBoundary,
    HopLatency,
    PinnedLayers,
    Power,
    Problem,
    TpInsideNode,
    rule_of,
)


@dataclass(frozen=True)
class Restriction:
    """What a constraint takes away.

    Attributes
    ----------
    cuts
        Places in the listed order where no stage, or chunk of one, may end
        (0 < cut < n), where stages are intervals of it.
    together
        Places that one stage must hold, all of them; it may be in several
        chunks.
    apart
        Pairs (first, second) of places, first < second, that no stage may
        both hold.
    not_last
        Places that are not the last, in the listed order, of a stage that has
        one after it: what `cuts` says where layers may be in any order.
    pins
        Layers that must be in a stage of a given number.
    highest_hop_level, highest_tp_level
        Highest network level that a hop, or a tensor-parallel group, may
        use; None for any, -1 for none.
    degrees
        Limits of degrees.
    device_maps
        What a device map must satisfy, each.
    """

    cuts: frozenset[int] = frozenset()
    together: tuple[tuple[int, ...], ...] = ()
    apart: frozenset[tuple[int, int]] = frozenset()
    not_last: frozenset[int] = frozenset()
    pins: tuple[PinnedLayers, ...] = ()
    highest_hop_level: int | None = None
    highest_tp_level: int | None = None
    degrees: tuple[DegreeLimit, ...] = ()
    device_maps: tuple[Callable[[DeviceMap | ListedMap], bool], ...] = ()

    @property
    def limits_cuts(self) -> bool:
        """Whether some ways to cut the layers are forbidden."""
        return bool(self.cuts or self.together or self.apart or self.not_last or self.pins)

    def __and__(self, other: "Restriction") -> "Restriction":
        return Restriction(
            self.cuts | other.cuts,
            self.together + other.together,
            self.apart | other.apart,
            self.not_last | other.not_last,
            self.pins + other.pins,
            _least(self.highest_hop_level, other.highest_hop_level),
            _least(self.highest_tp_level, other.highest_tp_level),
            self.degrees + other.degrees,
            self.device_maps + other.device_maps,
        )

    @property
    def interval_cuts(self) -> frozenset[int]:
        """Places where no stage of one interval may end: between layers that go together too."""
        between = (range(min(places) + 1, max(places) + 1) for places in self.together)
        return self.cuts.union(*between)

    def allows_pair(self, microbatch: int, configuration: Configuration) -> bool:
        """Whether the limits allow a microbatch size and a configuration."""
        k = configuration
        return all(
            self._allows(name, value)
            for name, value in (
                ("microbatch", microbatch),
                ("tp", k.tp),
                ("cp", k.cp),
                ("ep", k.ep),
            )
        )

    def allows_replicas(self, replicas: int) -> bool:
        """Whether the limits allow a data-parallel degree."""
        return self._allows("dp", replicas)

    def allows_stages(self, stages: int) -> bool:
        """Whether the limits allow a number of stages, and every pin has its stage there."""
        return self._allows("pp", stages) and all(pin.least_stages <= stages for pin in self.pins)

    def _allows(self, degree: str, value: int) -> bool:
        return all(limit.allows(value) for limit in self.degrees if limit.degree == degree)

    @property
    def limits_replicas(self) -> bool:
        """Whether a limit of the data-parallel degree is among the limits."""
        return any(limit.degree == "dp" for limit in self.degrees)

    @property
    def limits_levels(self) -> bool:
        """Whether hops or tensor-parallel groups are limited to some levels."""
        return self.highest_hop_level is not None or self.highest_tp_level is not None

    def allows_levels(self, tp: int, hop: int) -> bool:
        """Whether a tensor-parallel group and a hop may be on these levels."""
        most_tp, most_hop = self.highest_tp_level, self.highest_hop_level
        return (most_tp is None or tp <= most_tp) and (most_hop is None or hop <= most_hop)

    def allows_map(self, device_map: DeviceMap | ListedMap) -> bool:
        """Whether a device map satisfies all that is asked of it."""
        return all(allows(device_map) for allows in self.device_maps)


def _least(first: int | None, second: int | None) -> int | None:
    """Return the lower of two limits, of which None is none."""
    return min((limit for limit in (first, second) if limit is not None), default=None)


def restrict_colocation(constraint: Colocation, problem: Problem) -> Restriction:
    """Forbid every stage that holds some of the layers, but not all."""
    return Restriction(together=(tuple(problem.model.index[name] for name in constraint.layers),))


def restrict_anti_colocation(constraint: AntiColocation, problem: Problem) -> Restriction:
    """Forbid every stage with two of the layers."""
    places = sorted(problem.model.index[name] for name in constraint.layers)
    return Restriction(apart=frozenset(combinations(places, 2)))


def restrict_pinned_layers(constraint: PinnedLayers, problem: Problem) -> Restriction:
    """Forbid every stage of that number without the layers."""
    return Restriction(pins=(constraint,))


def restrict_forbidden_boundary(constraint: ForbiddenBoundary, problem: Problem) -> Restriction:
    """Forbid the cut after the layer: every stage but the last whose last layer it is."""
    last = problem.model.index[constraint.after]
    return Restriction(cuts=frozenset({last + 1}), not_last=frozenset({last}))


def restrict_hop_latency(constraint: HopLatency, problem: Problem) -> Restriction:
    """Allow hops only up to the last level whose latency is within the limit."""
    levels = planned_levels(problem.cluster).levels
    allowed = sum(level.latency_s <= constraint.limit_s for level in levels)
    return Restriction(highest_hop_level=allowed - 1)


def restrict_degree_limit(constraint: DegreeLimit, problem: Problem) -> Restriction:
    """Forbid every cell whose degree breaks the limit."""
    return Restriction(degrees=(constraint,))


def restrict_tp_inside_node(constraint: TpInsideNode, problem: Problem) -> Restriction:
    """Allow tensor-parallel groups only up to the named level."""
    level = planned_levels(problem.cluster).level_number(constraint.level)
    return Restriction(highest_tp_level=level)


def restrict_failure_domains(constraint: FailureDomains, problem: Problem) -> Restriction:
    """Forbid every device map with more replicas in some group."""
    size, most = planned_levels(problem.cluster).group_size(constraint.level), constraint.at_most
    return Restriction(device_maps=(lambda device_map: most_replicas(device_map, size) <= most,))


def restrict_power(constraint: Power, problem: Problem) -> Restriction:
    """Forbid every device map with more devices in use in some group than the limit feeds."""
    watts = problem.cluster.device_kind.watts
    assert watts is not None
    size = planned_levels(problem.cluster).group_size(constraint.level)
    most = Fraction(constraint.limit_w) // Fraction(watts)
    return Restriction(device_maps=(lambda device_map: most_devices(device_map, size) <= most,))


RULES: dict[str, Callable[[Any, Problem], Restriction]] = {
    "colocation": restrict_colocation,
    "anti-colocation": restrict_anti_colocation,
    "pinned-layers": restrict_pinned_layers,
    "forbidden-boundary": restrict_forbidden_boundary,
    "hop-latency": restrict_hop_latency,
    "degree-limit": restrict_degree_limit,
    "tp-inside-node": restrict_tp_inside_node,
    "failure-domains": restrict_failure_domains,
    "power": restrict_power,
}


def restriction(problem: Problem) -> Restriction:
    """Return what all constraints of a problem together take away."""
    return reduce(
        lambda left, right: left & right,
        (
            RULES[rule_of(constraint)](constraint, problem)
            for constraint in problem.constraints
            if rule_of(constraint) in RULES
        ),
        Restriction(),
    )


def relaxed_constraints(problem: Problem) -> tuple[str, ...]:
    """Return the rules' names of constraints that the DP has no rule for."""
    return tuple(name for name in map(rule_of, problem.constraints) if name not in RULES)
