"""What a runtime can launch, as ordinary data of a problem: a narrower search and fewer profiles.

A rule of a runtime becomes values that the search space leaves out, profiles
that layer types leave out, or a job that does not pad. So every search, every
check and every plan file keeps it without knowing of runtimes. `docs/runtimes.md`
has each rule's source, and what is not applied.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.problem import DEFAULTS
from nest_opt.problem.search import SearchSpace

# Whether a runtime launches a configuration of a problem's model and job.
Launches = Callable[[Problem, Configuration], bool]


@dataclass(frozen=True)
class Rule:
    """One rule of a runtime.

    Attributes
    ----------
    name
        What messages call it.
    search
        The values that a dimension of the search space may have.
    launches
        Which configurations keep the rule; None if all do.
    whole_rounds
        Whether the data streams must divide the global batch.
    one_zero
        Whether both parameter classes have one ZeRO level.
    applies
        The problems, with their profiles as the rules before have left them,
        that the rule is about.
    """

    name: str
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    launches: Launches | None = None
    whole_rounds: bool = False
    one_zero: bool = False
    applies: Callable[[Problem], bool] = lambda problem: True


def _has_two_grids(problem: Problem) -> bool:
    """Whether experts and other layers may have copies of different numbers."""
    return any(k.ep > 1 or k.cp > 1 for _, k in problem.candidates)


def _splits_heads(problem: Problem, k: Configuration) -> bool:
    return (problem.model.attention_heads or 0) % k.tp == 0


def _splits_experts(problem: Problem, k: Configuration) -> bool:
    return (problem.model.experts or k.ep) % k.ep == 0


def _splits_sequence(problem: Problem, k: Configuration) -> bool:
    return k.cp == 1 or (problem.job.sequence_length or 0) % (2 * k.cp) == 0


def _splits_sequence_by_tp_too(problem: Problem, k: Configuration) -> bool:
    return (problem.job.sequence_length or 0) % (2 * k.tp * k.cp) == 0


ONE_CONFIGURATION = Rule("one configuration for all stages", {"per_stage": ()})
NO_GAPS = Rule("rank r runs on device r", {"pitch": ("tight",)})
STAGES_OUTERMOST = Rule("stages are outermost in the order of ranks", {"order": ("dp-inner",)})
WHOLE_ROUNDS = Rule("data streams divide the global batch", whole_rounds=True)
ONE_ZERO = Rule("one ZeRO level for all parameters", one_zero=True)
CP_OR_EP = Rule("cp and ep not both above 1", launches=lambda _, k: k.cp == 1 or k.ep == 1)

RUNTIMES: dict[str, tuple[Rule, ...]] = {
    "megatron": (
        ONE_CONFIGURATION,
        NO_GAPS,
        WHOLE_ROUNDS,
        ONE_ZERO,
        Rule("tp divides the attention heads", launches=_splits_heads),
        Rule("ep divides the experts", launches=_splits_experts),
        Rule("2 * cp divides the sequence", launches=_splits_sequence),
        Rule(
            "tp and ep together need sp",
            launches=lambda _, k: k.tp == 1 or k.ep == 1 or k.sp,
        ),
        CP_OR_EP,
        Rule(
            "stages are outermost in the order of ranks where cp or ep may exceed 1",
            {"order": ("dp-inner",)},
            applies=_has_two_grids,
        ),
        Rule("schedules 1f1b and interleaved", {"schedule": ("1f1b", "interleaved")}),
    ),
    "deepspeed": (
        ONE_CONFIGURATION,
        NO_GAPS,
        WHOLE_ROUNDS,
        STAGES_OUTERMOST,
        ONE_ZERO,
        Rule("pipelines shard optimizer states at most", {"zero": (0, 1)}),
        Rule("states are shared out over all copies", {"zero_instances": (1,)}),
        Rule("no context parallelism", launches=lambda _, k: k.cp == 1),
        Rule("schedule 1f1b", {"schedule": ("1f1b",)}),
    ),
    "torchtitan": (
        ONE_CONFIGURATION,
        NO_GAPS,
        WHOLE_ROUNDS,
        STAGES_OUTERMOST,
        ONE_ZERO,
        Rule("2 * tp * cp divides the sequence", launches=_splits_sequence_by_tp_too),
        CP_OR_EP,
        Rule(
            "schedules 1f1b, gpipe and interleaved",
            {"schedule": ("1f1b", "gpipe", "interleaved")},
        ),
    ),
}


def for_runtime(problem: Problem, runtime: str) -> Problem:
    """Return the problem with what a runtime cannot launch left out.

    Parameters
    ----------
    runtime
        A name of `RUNTIMES`.

    Raises
    ------
    InstanceError
        If there is no such runtime, the problem is no pipeline of the default
        cost model, or a rule leaves nothing of what the problem asks for.
    """
    if runtime not in RUNTIMES:
        raise InstanceError(
            f"runtime: found {runtime!r}, one of {', '.join(RUNTIMES)} is needed: correct the name"
        )
    if problem.is_placement_graph or problem.job.cost_model == "artifact":
        found = "a placement graph" if problem.is_placement_graph else "cost model artifact"
        raise InstanceError(
            f"runtime: found {runtime} for {found}, a pipeline with cost model default is needed: "
            "leave the runtime out"
        )
    for rule in RUNTIMES[runtime]:
        if rule.applies(problem):
            problem = keep(problem, rule, runtime)
    note = f"Narrowed to what the runtime {runtime} launches."
    return problem.model_copy(update={"note": f"{problem.note} {note}".strip()[-10_000:]})


def keep(problem: Problem, rule: Rule, runtime: str) -> Problem:
    """Return the problem narrowed to one rule.

    Raises
    ------
    InstanceError
        If that leaves nothing.
    """
    if rule.whole_rounds and problem.job.pad:
        problem = problem.model_copy(update={"job": problem.job.model_copy(update={"pad": False})})
    if rule.one_zero:
        problem = _join_zero(problem, rule, runtime)
    if rule.search:
        problem = _narrow(problem, rule, runtime)
    if rule.launches is not None:
        problem = _leave_out(problem, rule, rule.launches, runtime)
    return problem


def _narrow(problem: Problem, rule: Rule, runtime: str) -> Problem:
    search = _as_set(problem.search)
    for name, allowed in rule.search.items():
        asked = getattr(problem.search, name)
        search[name] = tuple(value for value in asked if value in allowed)
        if asked and allowed and not search[name]:
            raise _nothing_left(rule, runtime, f"{name} {', '.join(map(str, asked))}")
    return problem.model_copy(update={"search": SearchSpace(**search)})


def _join_zero(problem: Problem, rule: Rule, runtime: str) -> Problem:
    """Leave out ZeRO levels of dense parameters that experts may not have, and all of theirs."""
    search = problem.search
    if search.zero_expert is None:
        return problem
    known = search.zero_expert if problem.has_experts else search.zero
    both = tuple(level for level in search.zero if level in known)
    if not both:
        asked = f"zero {', '.join(map(str, search.zero))} and zero_expert "
        raise _nothing_left(rule, runtime, asked + ", ".join(map(str, search.zero_expert)))
    values = {**_as_set(search), "zero": both, "zero_expert": None}
    return problem.model_copy(update={"search": SearchSpace(**values)})


def _leave_out(problem: Problem, rule: Rule, launches: Launches, runtime: str) -> Problem:
    """Leave out profiles, and values of the search space that have none any more."""
    pairs = {k for kind in problem.model.used_types for _, k in kind.by_key}
    refused = {k for k in pairs if not launches(problem, k)}
    if not refused:
        return problem
    kept = [pair for pair in problem.candidates if pair[1] not in refused]
    if not kept:
        asked = ", ".join(sorted({str(k) for _, k in problem.candidates}))
        raise _nothing_left(rule, runtime, asked)
    types = {
        name: kind.model_copy(
            update={"profiles": [p for p in kind.profiles if p.configuration not in refused]}
        )
        for name, kind in problem.model.layer_types.items()
        if any(p.configuration not in refused for p in kind.profiles)
    }
    search = _as_set(problem.search)
    for place, name in enumerate(("microbatch", *Configuration._fields)):
        if search.get(name) is not None:
            have = {(b, *k)[place] for b, k in kept}
            search[name] = tuple(value for value in search[name] if value in have)
    model = problem.model.model_copy(update={"layer_types": types})
    return problem.model_copy(update={"model": model, "search": SearchSpace(**search)})


def _as_set(search: SearchSpace) -> dict[str, Any]:
    """Return the dimensions that are not at their defaults: an open one stays open."""
    values = {name: getattr(search, name) for name in SearchSpace.model_fields}
    return {name: value for name, value in values.items() if value != DEFAULTS[name]}


def _nothing_left(rule: Rule, runtime: str, found: str) -> InstanceError:
    return InstanceError(
        f"runtime {runtime}: found {found} alone, which its rule '{rule.name}' leaves nothing "
        "of: ask for other values, or leave the runtime out (docs/runtimes.md)"
    )
