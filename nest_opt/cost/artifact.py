"""The cost model of the NEST paper's artifact, oddities included.

It exists to compare with published results; the default model has none of
the oddities. `docs/artifact.md` names each of them, with the data that settled
how the artifact behaves. In this model:

- `dense_parameters` counts bytes of weights, memory is 2 or 8 times that;
- the stash of recomputation mode `none` is a layer's activation bytes;
- every edge is a tensor of its own, charged to both stages that it enters
  and leaves however many stages it skips, at the level of the adjacent hop;
- only the first stage's gradients are all-reduced.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from operator import mul

from nest_opt.cost.table import refuse_total
from nest_opt.cost.units import to_ps
from nest_opt.errors import InstanceError
from nest_opt.network import planned_levels
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute


@dataclass(frozen=True)
class ArtifactLayers:
    """Per-layer integers of one configuration.

    `edges` are (producer, consumer, bytes) by layer index.
    """

    forward_ps: tuple[int, ...]
    backward_ps: tuple[int, ...]
    parameter_bytes: tuple[int, ...]
    activation_bytes: tuple[int, ...]
    edges: tuple[tuple[int, int, int], ...]


class ArtifactCosts:
    """Coefficients and formulas of the artifact's cost model.

    Raises
    ------
    InstanceError
        If the problem leaves the model's space: several microbatch sizes, or
        a choice of recomputation modes (the artifact recomputes everywhere
        but in the last stage, or nowhere).
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        sizes = sorted({microbatch for microbatch, _ in problem.candidates})
        if len(sizes) != 1 or len(problem.search.recompute) != 1:
            raise InstanceError(
                f"job.cost_model artifact: found microbatch sizes {sizes} and recomputation modes "
                f"{list(problem.search.recompute)}, 1 of each is allowed: import the file anew"
            )
        states = problem.job.bytes_per_parameter.total
        if states.denominator != 1:
            raise InstanceError(
                f"job.bytes_per_parameter: found {float(states)} bytes in all, a whole number is "
                "needed for cost_model artifact: round one of them"
            )
        search = problem.search
        if problem.constraints or "pp-inner" not in search.order or "tight" not in search.pitch:
            raise InstanceError(
                f"job.cost_model artifact: found {len(problem.constraints)} constraints, order "
                f"{list(search.order)} and pitch {list(search.pitch)}; no constraint is allowed, "
                "pp-inner and tight are needed: remove them, or use the default cost model"
            )
        self.microbatch = sizes[0]
        self.usable_bytes = problem.cluster.device_kind.usable_bytes
        self.recomputes = problem.search.recompute == ("full",)
        levels = planned_levels(problem.cluster).levels
        self._group_sizes = tuple(accumulate((level.size for level in levels), mul))
        self._latency_s = [Fraction(level.latency_s) for level in levels]
        self._raw_bandwidth = [Fraction(level.bandwidth_bytes_per_s) for level in levels]
        self._bandwidth = list(accumulate(self._raw_bandwidth, min))
        self._hop_cache: dict[tuple[int, int], int] = {}

    @cached_property
    def layers(self) -> dict[Configuration, ArtifactLayers]:
        """Per-layer integers by configuration."""
        return {
            configuration: self._layers(configuration)
            for _, configuration in self.problem.candidates
        }

    def _layers(self, configuration: Configuration) -> ArtifactLayers:
        graph = self.problem.model
        if any("none" not in p.recompute for kind in graph.used_types for p in kind.profiles):
            raise InstanceError(
                "job.cost_model artifact: found a profile without the footprint of recompute mode "
                "none, which holds a layer's activations: add it"
            )
        profiles = [kind.by_key[self.microbatch, configuration] for kind in graph.types]
        layers = ArtifactLayers(
            forward_ps=tuple(to_ps(Fraction(p.forward_s)) for p in profiles),
            backward_ps=tuple(
                to_ps(Fraction(p.backward_input_s)) + to_ps(Fraction(p.backward_weight_s))
                for p in profiles
            ),
            parameter_bytes=tuple(p.dense_parameters for p in profiles),
            activation_bytes=tuple(p.recompute["none"].stash_bytes for p in profiles),
            edges=tuple(
                (producer, consumer, size)
                for producer, consumers, size in graph.tensors(self.microbatch, configuration.tp)
                for consumer in consumers
            ),
        )
        self._refuse_overflow(layers)
        return layers

    def _refuse_overflow(self, layers: ArtifactLayers) -> None:
        """Refuse totals that leave the range of the search arrays."""
        top, count = len(self._group_sizes) - 1, len(layers.forward_ps)
        tensors = sum(size for _, _, size in layers.edges)
        hops = sum(self.hop_ps(size, top) for _, _, size in layers.edges)
        weights = sum(layers.parameter_bytes)
        fixed, per_byte = self.all_reduce_s(self.problem.cluster.device_count, top)
        states = int(self.problem.job.bytes_per_parameter.total) * weights
        stashes = (count + 1) * (sum(layers.activation_bytes) + tensors)
        times = sum(layers.forward_ps) + 2 * sum(layers.backward_ps) + 2 * hops
        refuse_total("times of all layers and hops", times, "ps")
        refuse_total("all-reduce of all layers", to_ps(fixed + per_byte * weights), "ps")
        refuse_total("states and stashes of all layers", states + stashes, "bytes")

    def level(self, first: int, second: int) -> int:
        """Return the level of the link between two devices."""
        return next(
            level for level, size in enumerate(self._group_sizes) if first // size == second // size
        )

    def hop_ps(self, size_bytes: int, level: int) -> int:
        """Return the time of one transfer, doubled from level 1 on."""
        key = (size_bytes, level)
        if key not in self._hop_cache:
            once = self._latency_s[level] + size_bytes / self._bandwidth[level]
            self._hop_cache[key] = to_ps(once if level == 0 else 2 * once)
        return self._hop_cache[key]

    def mode(self, stages_from_end: int) -> Recompute:
        """Return the mode of the stage that is number 1, 2, ... from the end."""
        return "full" if self.recomputes and stages_from_end > 1 else "none"

    def stage_terms_ps(
        self,
        configuration: Configuration,
        low: int,
        high: int,
        level_in: int | None,
        level_out: int | None,
        mode: Recompute,
    ) -> dict[str, int]:
        """Return the load of a stage as its forward and its backward part.

        Each part is a longest path: tensors from outside arrive after their
        hop. Backward, the recomputed pass (the sum of the *backward* times)
        runs while the incoming gradients travel.
        """
        layers = self.layers[configuration]
        inside = range(low, high)
        arrival, finish = dict.fromkeys(inside, 0), dict.fromkeys(inside, 0)
        for producer, consumer, size in layers.edges:
            if consumer in inside and producer < low and level_in is not None:
                arrival[consumer] = max(arrival[consumer], self.hop_ps(size, level_in))
        for layer in inside:
            ready = [finish[u] for u, v, _ in layers.edges if v == layer and u in inside]
            finish[layer] = layers.forward_ps[layer] + max([arrival[layer], *ready])
        forward = max(finish.values())

        repeat = sum(layers.backward_ps[low:high]) if mode == "full" else 0
        arrival = dict.fromkeys(inside, repeat)
        for producer, consumer, size in layers.edges:
            if producer in inside and consumer >= high and level_out is not None:
                arrival[producer] = max(arrival[producer], self.hop_ps(size, level_out))
        for layer in reversed(inside):
            ready = [finish[v] for u, v, _ in layers.edges if u == layer and v in inside]
            finish[layer] = layers.backward_ps[layer] + max([arrival[layer], *ready])
        return {"forward path": forward, "backward path": max(finish.values())}

    def memory_terms_bytes(
        self,
        configuration: Configuration,
        low: int,
        high: int,
        stages_from_end: int,
        mode: Recompute,
    ) -> dict[str, int]:
        """Return 2 P (or 8 P) + A + (s - 1) stash for the s-th stage from the end.

        The stash is the stage's incoming boundary tensors where it
        recomputes, else its activations A.
        """
        layers = self.layers[configuration]
        activations = sum(layers.activation_bytes[low:high])
        incoming = sum(size for u, v, size in layers.edges if u < low <= v < high)
        per_byte = int(self.problem.job.bytes_per_parameter.total)
        return {
            "states": per_byte * sum(layers.parameter_bytes[low:high]),
            "stash": (stages_from_end - 1) * (incoming if mode == "full" else activations),
            "work": activations,
        }

    def all_reduce_ps(
        self, configuration: Configuration, low: int, high: int, replicas: int, pipeline: int
    ) -> int:
        """Return the all-reduce of the first stage over d > 1 replicas.

        `pipeline` is u, the devices of one replica; replicas are taken to sit
        at devices 0, u, 2u, ...
        """
        fixed, per_byte = self.all_reduce_s(replicas, self.level(0, (replicas - 1) * pipeline))
        size = sum(self.layers[configuration].parameter_bytes[low:high])
        return to_ps(fixed + per_byte * size)

    def all_reduce_s(self, replicas: int, level: int) -> tuple[Fraction, Fraction]:
        """Return the exact (seconds, seconds per byte) of the artifact's all-reduce.

        At level 0 the bytes of a halving-doubling over all d replicas with half
        of its steps; each higher level adds twice its transfer plus everything
        added up so far.
        """
        steps = replicas.bit_length() - 1
        latency, bandwidth = self._latency_s, self._raw_bandwidth
        fixed = steps * latency[0]
        per_byte = sum((Fraction(1, 2**k) / bandwidth[0] for k in range(steps)), Fraction(0))
        lower_fixed = lower_per_byte = Fraction(0)
        for upper in range(1, level + 1):
            fixed += 2 * latency[upper] + lower_fixed
            per_byte += 2 / bandwidth[upper] + lower_per_byte
            lower_fixed += fixed
            lower_per_byte += per_byte
        return fixed, per_byte
