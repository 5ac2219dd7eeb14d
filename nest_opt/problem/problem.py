"""The problem: one object, one file."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from nest_opt.errors import InstanceError
from nest_opt.problem.base import Frozen, Identifier
from nest_opt.problem.cluster import Cluster
from nest_opt.problem.constraints import (
    AntiColocation,
    Colocation,
    Constraint,
    FailureDomains,
    ForbiddenBoundary,
    PinnedLayers,
    Power,
    TpInsideNode,
)
from nest_opt.problem.graph import LayerGraph
from nest_opt.problem.job import Job
from nest_opt.problem.profile import Configuration
from nest_opt.problem.search import SearchSpace
from nest_opt.problem.transfer import (
    refuse_other_than_pipeline,
    refuse_other_than_placement_graph,
)
from nest_opt.problem.zero import Zero

DEFAULT_MICROBATCHES = (1, 2, 4, 8)
DEFAULTS = {name: field.default for name, field in SearchSpace.model_fields.items()}


class Problem(Frozen):
    """A layer graph with profiles, a cluster, a job, constraints and a search space."""

    format: Literal["nest-opt-problem"] = "nest-opt-problem"
    version: Literal[1] = 1
    name: Identifier
    note: str = Field(default="", max_length=10_000)
    model: LayerGraph
    cluster: Cluster
    job: Job
    search: SearchSpace = SearchSpace()
    constraints: tuple[Constraint, ...] = ()

    @model_validator(mode="after")
    def _validate(self) -> "Problem":
        for number, constraint in enumerate(self.constraints):
            place = f"constraints[{number}] ({constraint.type})"
            for name in _layers_named(constraint):
                if name not in self.model.index:
                    raise ValueError(
                        f"{place}: names layer {name!r}, which does not exist: use the ids in "
                        "model.layers"
                    )
            self._require(constraint, place)
        if self.is_placement_graph:
            refuse_other_than_placement_graph(self)
        else:
            refuse_other_than_pipeline(self)
        if self.search.per_stage and self.job.cost_model == "artifact":
            raise ValueError(
                f"search.per_stage: found {', '.join(self.search.per_stage)} with cost_model "
                "artifact, which knows one tp and one sp for all stages: remove one of the two"
            )
        if self.model.has_tied and self.job.cost_model == "artifact":
            raise ValueError(
                f"model.layer_types: type {self.model.layers[-1].type!r}: found tied_parameters "
                "with cost_model artifact, which knows none: remove one of the two"
            )
        if any(self.zeros) and self.job.cost_model == "artifact":
            raise ValueError(
                f"search.zero: found {', '.join(map(str, self.zeros))} with cost_model artifact, "
                "which knows level 0 alone: remove one of the two"
            )
        self._check_schedules()
        if self.search.layer_order == "any":
            self._refuse_beside_any_order()
        return self

    def _refuse_beside_any_order(self) -> None:
        """Refuse what knows stages as intervals of the listed order alone."""
        beside = None
        if self.job.cost_model == "artifact":
            beside = "cost_model artifact"
        elif self.search.per_stage:
            beside = f"search.per_stage {', '.join(self.search.per_stage)}"
        elif self.model.has_tied:
            beside = "tied_parameters"
        elif "interleaved" in self.search.schedule:
            beside = "search.schedule interleaved"
        else:
            for number, constraint in enumerate(self.constraints):
                if constraint.type == "user":
                    beside = f"constraints[{number}], a user's own"
        if beside:
            raise ValueError(
                f"search.layer_order: found 'any' with {beside}, which knows stages of the listed "
                "order alone: use layer_order listed, or remove the other"
            )

    def _check_schedules(self) -> None:
        """Refuse schedules beside what does not know them."""
        other = [name for name in self.search.schedule if name != "1f1b"]
        if other and self.job.cost_model == "artifact":
            raise ValueError(
                f"search.schedule: found {', '.join(other)} with cost_model artifact, which "
                "knows 1f1b alone: remove one of the two"
            )
        if "interleaved" in other and self.search.per_stage:
            raise ValueError(
                "search.schedule: found interleaved with search.per_stage, the search knows "
                "stages that differ under 1f1b, gpipe and zb-h1 alone: remove one of the two"
            )

    @property
    def is_placement_graph(self) -> bool:
        """Whether layers go on single devices, instead of runs of them on blocks of devices."""
        return self.job.transfer == "sender-once"

    @cached_property
    def zeros(self) -> tuple[Zero, ...]:
        """What a plan may shard: levels of both parameter classes, and runs of replicas."""
        return self.search.sharding(self.has_experts)

    @cached_property
    def has_experts(self) -> bool:
        """Whether any layer has expert parameters."""
        return any(p.expert_parameters for kind in self.model.used_types for p in kind.profiles)

    def _require(self, constraint: Constraint, place: str) -> None:
        """Refuse a constraint on what the model or the cluster does not have."""
        layers = len(self.model.ids)
        if isinstance(constraint, PinnedLayers) and constraint.least_stages > layers:
            raise ValueError(
                f"{place}: found stage {constraint.stage} of at least {constraint.least_stages} "
                f"stages, at most {layers} are possible (one for each layer): correct the number"
            )
        if isinstance(constraint, TpInsideNode | FailureDomains | Power):
            try:
                self.cluster.network.level_number(constraint.level)
            except ValueError as error:
                raise ValueError(f"{place}.{error}") from error
        if isinstance(constraint, Power) and self.cluster.device_kind.watts is None:
            raise ValueError(
                f"{place}: found no watts of kind {self.cluster.devices[0].kind!r}, a number "
                "is needed: add the field to the kind, or remove the constraint"
            )

    @cached_property
    def candidates(self) -> tuple[tuple[int, Configuration], ...]:
        """Pairs (microbatch size, configuration) of the search space that have profiles.

        Raises
        ------
        InstanceError
            If there is none, or a value that the search space names has none.
        """
        search = self.search
        asked: dict[str, tuple[int, ...]] = {
            "microbatch": search.microbatch or DEFAULT_MICROBATCHES,
            "tp": search.tp or self._default_tp(),
            "cp": search.cp,
            "ep": search.ep or self._default_ep(),
            "sp": search.sp,
        }
        found = tuple(
            (microbatch, configuration)
            for microbatch, configuration in sorted(self.model.used_types[0].by_key)
            if all(
                value in values
                for value, values in zip((microbatch, *configuration), asked.values(), strict=True)
            )
            and self.model.is_profiled(microbatch, configuration)
        )
        self._refuse_missing_size(asked)
        # A value that is named must exist somewhere; of open dimensions, what does.
        profiled = [
            pair for pair in self.model.used_types[0].by_key if self.model.is_profiled(*pair)
        ]
        for place, name in enumerate(asked):
            if getattr(search, name) == DEFAULTS[name]:
                continue
            have = {(pair[0], *pair[1])[place] for pair in profiled}
            for value in asked[name]:
                if value not in have:
                    raise InstanceError(self._unprofiled(name, value))
        if not found:
            name = next((n for n in asked if getattr(search, n) != DEFAULTS[n]), "microbatch")
            raise InstanceError(self._unprofiled(name, asked[name][0]))
        return found

    def _refuse_missing_size(self, asked: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse a tensor without bytes for a pair that all layers have profiles for.

        Leaving the pair out would narrow the search without a word.
        """
        types = self.model.used_types
        for microbatch, k in sorted(set(types[0].by_key).intersection(*(t.by_key for t in types))):
            values = zip((microbatch, *k), asked.values(), strict=True)
            edge = self.model.edge_without_size(microbatch, k.tp)
            if edge and all(value in allowed for value, allowed in values):
                place = "output_bytes of its source's type" if edge.sizes is None else "sizes"
                raise InstanceError(
                    f"model.edges: {edge} has no bytes for microbatch={microbatch} {k}, which the "
                    f"layers have profiles for: add them to {place}"
                )

    def _unprofiled(self, dimension: str, value: int) -> str:
        types = self.model.used_types
        pairs = set(types[0].by_key).intersection(*(kind.by_key for kind in types))
        known = ", ".join(f"microbatch={b} {k}" for b, k in sorted(pairs)[:8]) or "none"
        return (
            f"search: {dimension}={value} has no profile in every layer type together with the "
            f"other values asked for; profiled in all of them: {known}; "
            "add profiles or ask for those values"
        )

    def _default_tp(self) -> tuple[int, ...]:
        innermost = self.cluster.network.innermost_size
        heads = self.model.attention_heads
        powers = (2**exponent for exponent in range(innermost.bit_length()))
        return tuple(p for p in powers if p <= innermost and (heads is None or heads % p == 0))

    def _default_ep(self) -> tuple[int, ...]:
        experts = self.model.experts or 1
        return tuple(degree for degree in range(1, experts + 1) if experts % degree == 0)


def _layers_named(constraint: Constraint) -> tuple[str, ...]:
    if isinstance(constraint, Colocation | AntiColocation | PinnedLayers):
        return constraint.layers
    if isinstance(constraint, ForbiddenBoundary):
        return (constraint.after,)
    return ()
