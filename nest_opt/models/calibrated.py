"""What a problem's network is by one's own measurements: a fitted fabric as levels."""

from dataclasses import dataclass
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.network.collectives import Fabric
from nest_opt.problem import Problem
from nest_opt.problem.cluster import HierarchicalSpec


@dataclass(frozen=True)
class MeasuredLevel:
    """A level as the cost model takes it: of a flat ring with large buffers.

    Attributes
    ----------
    bandwidth_bytes_per_s
        The peak times the share that streaming neighbours attain under the
        widest protocol.
    latency_s
        A step of that protocol; at least that of the level inside.
    """

    bandwidth_bytes_per_s: Fraction
    latency_s: Fraction


def measured_levels(fabric: Fabric) -> tuple[MeasuredLevel, ...]:
    """Return what a fabric's levels are to the cost model, innermost first.

    Raises
    ------
    InstanceError
        If neighbours cannot stream to each other on a level.
    """
    found: list[MeasuredLevel] = []
    latency = Fraction(0)
    for level, link in enumerate(fabric.links):
        if "stream" not in link.shares:
            raise InstanceError(
                f"fabric {fabric.name}: found no share of rings on level {level}, it is needed for "
                "a level's bandwidth: take another fabric"
            )
        wide = max(fabric.protocols, key=lambda protocol: protocol.shares[level])
        attained = link.shares["stream"] * wide.shares[level]
        latency = max(latency, wide.steps_s[level])
        peak = link.bandwidths_bytes_per_s[-1]
        found.append(MeasuredLevel(peak * attained, latency))
    return tuple(found)


def with_measured_levels(problem: Problem, fabric: Fabric) -> Problem:
    """Return a problem whose innermost levels have a fabric's bandwidths and latencies.

    Bandwidths are rounded down to bytes/s and latencies up to picoseconds.

    Raises
    ------
    InstanceError
        If its network is not hierarchical, has fewer levels than the fabric, or
        an outer level is left with less latency than those inside it.
    """
    network, levels = problem.cluster.network, measured_levels(fabric)
    if not isinstance(network, HierarchicalSpec) or len(network.levels) < len(levels):
        raise InstanceError(
            f"network: found {_shape(network)}, a hierarchical one of at least {len(levels)} "
            f"is needed for fabric {fabric.name}: give another problem, or leave out the network"
        )
    outer = network.levels[len(levels) :]
    if outer and outer[0].latency_s < levels[-1].latency_s:
        raise InstanceError(
            f"network: found latency {outer[0].latency_s} s on level {outer[0].name!r}, at least "
            f"{float(levels[-1].latency_s):.3g} s is needed (measured inside it): raise it in the "
            "problem"
        )
    changed = tuple(
        level.model_copy(
            update={
                "bandwidth_bytes_per_s": int(measured.bandwidth_bytes_per_s),
                "latency_s": _rounded_up(measured.latency_s),
            }
        )
        for level, measured in zip(network.levels, levels, strict=False)
    )
    spec = network.model_copy(update={"levels": (*changed, *outer)})
    cluster = problem.cluster.model_copy(update={"network": spec})
    return problem.model_copy(update={"cluster": cluster})


def _shape(network: object) -> str:
    if isinstance(network, HierarchicalSpec):
        return f"{len(network.levels)} levels"
    return f"a network of type {getattr(network, 'type', 'unknown')}"


def _rounded_up(seconds: Fraction) -> str:
    """Return seconds as a decimal of whole picoseconds."""
    picoseconds = -(-seconds.numerator * 10**12 // seconds.denominator)
    whole, rest = divmod(picoseconds, 10**12)
    return f"{whole}.{rest:012d}"
