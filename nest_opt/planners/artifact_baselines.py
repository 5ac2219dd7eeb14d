"""The baselines of the NEST paper's artifact, scored as its release does and as it means to.

The artifact turns a configuration (p, d, t, and perhaps layers by stage) into
stages and evaluates them. As released, two slips are in the way
(`docs/artifact.md` has the evidence): layers are counted from the embedding,
which is layer 0, so that each stage has the layers before its own and the last
one has one more; and the list of stages starts with the last one where the
evaluation takes the first to be, so that memory, recomputation and the
all-reduce are applied from the wrong end. Devices are right: the last stage has
the first ones.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise

from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan.check import check, check_form
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.problem import Configuration, Problem


@dataclass(frozen=True)
class Fixed:
    """A configuration: layers by stage as the artifact has them, before anything is corrected.

    Attributes
    ----------
    tp, replicas
        t and d.
    counts
        Transformer layers of each stage, first stage first: 0 where they have run out.
    """

    tp: int
    replicas: int
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Score:
    """What a configuration is found to take.

    Attributes
    ----------
    value_ps
        The batch time; None where the artifact has none.
    reason
        Why it has none: `memory`, `devices`, or an `empty stage`, on which the
        release crashes.
    """

    value_ps: int | None
    reason: str | None = None


def layer_counts(layers: int, stages: int, partition: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the transformer layers of each stage: ceil(L / p) until they run out.

    A partition counts if it has an entry for each stage.
    """
    if len(partition) == stages:
        return partition
    most = -(-layers // stages)
    return tuple(max(0, min(most, layers - most * stage)) for stage in range(stages))


def corrected_placement(costs: Costs, fixed: Fixed) -> Placement:
    """Return the stages that a configuration means.

    The embedding joins the first stage, and stages without layers are none.
    """
    counts = [count for count in fixed.counts if count]
    problem, artifact = costs.problem, costs.artifact
    counts[0] += len(problem.model.ids) - sum(counts)
    configuration, stages = _configuration(problem, fixed), len(counts)
    return Placement(
        artifact.microbatch,
        (configuration,) * stages,
        fixed.replicas,
        "pp-inner-reversed",
        stages * configuration.block_size,
        tuple(accumulate(counts)),
        tuple(artifact.mode(stages - stage) for stage in range(stages)),
    )


def corrected_score(costs: Costs, fixed: Fixed) -> Score:
    """Return the batch time of the stages that a configuration means, by the one evaluator."""
    placement = corrected_placement(costs, fixed)
    broken = check_form(costs, placement)
    if not broken:
        evaluation = evaluate(costs, placement)
        broken = check(costs, placement, evaluation)
        if not broken:
            return Score(evaluation.value_ps)
    return Score(None, broken[0].rule)


def released_score(costs: Costs, fixed: Fixed) -> Score:
    """Return the batch time that the release gives a configuration."""
    problem, artifact, counts = costs.problem, costs.artifact, list(fixed.counts)
    configuration, stages = _configuration(problem, fixed), len(counts)
    size = configuration.block_size
    # Layer numbers start with the embedding: what is left over goes to the last stage.
    counts[-1] += len(problem.model.ids) - sum(counts)
    if 0 in counts:
        return Score(None, "empty stage")
    if fixed.replicas * stages * size > problem.cluster.device_count:
        return Score(None, "devices")
    intervals, slowest = list(pairwise(accumulate(counts, initial=0))), 0
    for stage, (low, high) in enumerate(intervals):
        # The first stage is taken to be the last one, and so on.
        from_end, start = stage + 1, (stages - 1 - stage) * size
        mode = artifact.mode(from_end)
        memory = artifact.memory_terms_bytes(configuration, low, high, from_end, mode)
        if sum(memory.values()) > artifact.usable_bytes:
            return Score(None, "memory")
        level_in = artifact.level(start, start + size) if stage > 0 else None
        level_out = artifact.level(start, start - size) if start > 0 else None
        terms = artifact.stage_terms_ps(configuration, low, high, level_in, level_out, mode)
        slowest = max(slowest, sum(terms.values()))
    rounds = rounds_per_batch(problem.job, artifact.microbatch, configuration.ep, fixed.replicas)
    assert rounds is not None
    sync = 0
    if fixed.replicas > 1:
        last = intervals[-1]
        sync = artifact.all_reduce_ps(configuration, *last, fixed.replicas, stages * size)
    return Score((rounds + stages - 1) * slowest + sync)


def _configuration(problem: Problem, fixed: Fixed) -> Configuration:
    (ep,), (cp,) = problem.search.ep or (1,), problem.search.cp
    return Configuration(fixed.tp, cp, ep)
