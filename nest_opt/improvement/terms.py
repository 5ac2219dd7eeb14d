"""The batch time by cause: what the slowest stage does in every round, bubble, and sync."""

from nest_opt.plan.evaluate import ROUND_TERMS, Evaluation

COMPUTE, RECOMPUTATION = "compute", "recomputation"
COLLECTIVES, HOPS, SHARDS = "collectives", "hops", "sharded parameters"
BUBBLE, SYNC = "bubble", "sync"
TERMS = (COMPUTE, RECOMPUTATION, COLLECTIVES, HOPS, SHARDS, BUBBLE, SYNC)


def batch_terms(evaluation: Evaluation) -> dict[str, int]:
    """Return the terms of a batch time in picoseconds; their sum is the value.

    The first five are m times those of the slowest stage; `sync` is max X, max Y
    or nothing, as the objective has it; `bubble` is the rest, in which the
    slowest stage waits: sum F - max F under `fill-drain`, (S - 1) max F under
    `nest`, nothing under `bottleneck`.
    """
    slowest = max(evaluation.stages, key=lambda stage: stage.time_ps)
    terms = dict.fromkeys(TERMS, 0)
    for name, time_ps in slowest.time_terms_ps.items():
        terms[_cause(name)] += evaluation.rounds * time_ps
    terms[SYNC] = _sync_ps(evaluation)
    terms[BUBBLE] = evaluation.value_ps - sum(terms.values())
    return terms


def _cause(name: str) -> str:
    """Return what a term of F is counted as."""
    if name.startswith("recomputed"):
        return RECOMPUTATION
    if name.endswith("collectives"):
        return COLLECTIVES
    if name.startswith("hop"):
        return HOPS
    return SHARDS if name in ROUND_TERMS.values() else COMPUTE


def _sync_ps(evaluation: Evaluation) -> int:
    if evaluation.objective == "fill-drain":
        return max(stage.exposed_sync_ps for stage in evaluation.stages)
    if evaluation.objective == "nest":
        return max(stage.sync_ps for stage in evaluation.stages)
    return 0


def term_changes(before: Evaluation, after: Evaluation) -> dict[str, int]:
    """Return by how much each term grows from one plan to another; their sum is the value's."""
    old, new = batch_terms(before), batch_terms(after)
    return {name: new[name] - old[name] for name in TERMS}
