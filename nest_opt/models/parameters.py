"""Counting parameters: of a model, and of one rank of a stage."""

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

from nest_opt.errors import InstanceError
from nest_opt.models.spec import ModelSpec, TransformerSpec
from nest_opt.models.weight import Weight
from nest_opt.models.weights import block_kinds, embedding_weights, final_weights


class RankParameters(NamedTuple):
    """Parameters on one rank, by class."""

    dense: int
    expert: int


def parameters_per_rank(weights: Iterable[Weight], tp: int = 1, ep: int = 1) -> RankParameters:
    """Count the parameters on one rank of a stage that holds these weights.

    All ranks hold equally many. Tied weights count nothing: where the
    embedding is on another stage, add `tied_parameters_per_rank`.

    Raises
    ------
    InstanceError
        If `tp` or `ep` does not divide a weight that it splits.
    """
    counts = {"dense": 0, "expert": 0}
    for weight in weights:
        held = weight.rank_copies(ep) * prod(weight.rank_shape(tp))
        counts[weight.parameter_class] += 0 if weight.tied else held
    return RankParameters(counts["dense"], counts["expert"])


def tied_parameters_per_rank(weights: Iterable[Weight], tp: int = 1) -> int:
    """Count what a stage without the token embedding holds for its tied weights."""
    return sum(prod(weight.rank_shape(tp)) for weight in weights if weight.tied)


def parameters(spec: ModelSpec) -> int:
    """Count a model's trained parameters, tied ones once, buffers not at all."""
    return _total(spec, lambda weight: weight.parameters)


def dense_parameters(spec: ModelSpec) -> int:
    """Count the parameters outside routed experts."""
    return parameters(spec) - expert_parameters(spec)


def expert_parameters(spec: ModelSpec) -> int:
    """Count the parameters of all routed experts."""
    return _total(spec, lambda weight: weight.parameters * (weight.parameter_class == "expert"))


def active_parameters(spec: ModelSpec) -> int:
    """Count the parameters less those of experts that a token does not visit.

    The embedding is included; some sources leave it out.
    """
    return _total(spec, lambda weight: weight.active_parameters)


def _total(spec: ModelSpec, count: Callable[[Weight], int]) -> int:
    ends = (*embedding_weights(spec), *final_weights(spec))
    return sum(map(count, ends)) + sum(
        number * sum(map(count, weights)) for weights, number in block_kinds(spec)
    )


def tensor_parallel_degrees(spec: ModelSpec, at_most: int) -> tuple[int, ...]:
    """Return the degrees up to `at_most` by which every weight can be split."""
    return tuple(tp for tp in range(1, at_most + 1) if _splits(spec, tp))


def expert_parallel_degrees(spec: ModelSpec) -> tuple[int, ...]:
    """Return the degrees by which the experts can be shared out: 1 if there are none."""
    experts = spec.moe.experts if isinstance(spec, TransformerSpec) and spec.moe else 1
    return tuple(ep for ep in range(1, experts + 1) if experts % ep == 0)


def _splits(spec: ModelSpec, tp: int) -> bool:
    try:
        for weights, _ in block_kinds(spec):
            parameters_per_rank(weights, tp)
    except InstanceError:
        return False
    return True
