"""From a run to the problem and the plan that the one cost model knows."""

from dataclasses import dataclass, replace
from itertools import accumulate

from nest_opt.errors import InstanceError
from nest_opt.models.derive import layer_kinds
from nest_opt.models.memory import (
    FUSED_LOGIT_BYTES,
    MemoryRules,
    memory_rules,
    runtime_state_bytes,
)
from nest_opt.models.request import DerivedProblem, Request, derive_problem, find_spec
from nest_opt.models.spec import LinearSpec, ModelSpec
from nest_opt.plan.placement import Placement
from nest_opt.prediction.run import Degrees, RunConfiguration, check_run
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.problem import DEFAULTS
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.search import SearchSpace
from nest_opt.problem.zero import Zero


@dataclass(frozen=True)
class BuiltRun:
    """A run as a problem with nothing left to choose, and its one plan.

    Attributes
    ----------
    run, degrees
        What was asked for, and what follows from it.
    derived
        The problem as `nest-opt new` derives it, and from what.
    problem
        The same with its search space narrowed to the run.
    placement
        The plan's decisions.
    """

    run: RunConfiguration
    degrees: Degrees
    derived: DerivedProblem
    problem: Problem
    placement: Placement


def build_run(run: RunConfiguration) -> BuiltRun:
    """Return a run as a problem and a plan.

    Raises
    ------
    InstanceError
        If a name is unknown, a number out of range, or two contradict each other.
    """
    spec = find_spec(run.model) if isinstance(run.model, str) else run.model
    degrees = check_run(run, spec)
    _check_selective(run, spec)
    derived = derive_problem(_request(run, spec))
    _check_shares(run, derived.training.sequence_length)
    problem = derived.problem.model_copy(update={"search": _search(run, degrees)})
    return BuiltRun(run, degrees, derived, problem, _placement(run, degrees, spec))


def _check_shares(run: RunConfiguration, length: int) -> None:
    """Refuse sequences that tensor-parallel ranks cannot share out equally."""
    if run.sequence_parallel and length % (run.tp * run.cp):
        raise InstanceError(
            f"sequence parallelism: found sequences of {length} tokens, a multiple of "
            f"{run.tp * run.cp} is needed (tp {run.tp} * cp {run.cp}): change one of them, or "
            "leave it out"
        )


def _check_selective(run: RunConfiguration, spec: ModelSpec) -> None:
    """Refuse the recomputation of products of models whose products no rule knows."""
    if recompute_mode(run) != "selective" or memory_rules(run.runtime).selective == "core":
        return
    what = "no block of a transformer"
    if not isinstance(spec, LinearSpec):
        what = "experts" if spec.moe else "latent attention" if spec.mla else ""
    if what:
        raise InstanceError(
            f"recompute: found selective under {run.runtime} for {spec.name}, which has {what}; "
            "none or full is needed: which products are kept then is not known"
        )


def configuration(run: RunConfiguration) -> Configuration:
    """Return the intra-layer configuration of every stage."""
    return Configuration(run.tp, run.cp, run.ep, run.sequence_parallel)


def recompute_mode(run: RunConfiguration) -> Recompute:
    """Return what stages recompute: flash attention keeps no scores to recompute."""
    core = run.recompute == "selective" and memory_rules(run.runtime).selective == "core"
    return "none" if core and run.attention == "flash" else run.recompute


def _memory(run: RunConfiguration) -> MemoryRules:
    rules = memory_rules(run.runtime)
    if not run.fused_loss:
        return rules
    return replace(rules, logit_bytes=FUSED_LOGIT_BYTES, split_logit_bytes=FUSED_LOGIT_BYTES)


def _request(run: RunConfiguration, spec: ModelSpec) -> Request:
    states = None
    if run.bytes_per_parameter is None and run.runtime is not None:
        states = runtime_state_bytes(run.runtime, run.precision, run.zero)
    return Request(
        model=spec,
        cluster=run.cluster,
        devices=run.devices,
        accelerator=run.accelerator,
        global_batch=run.global_batch,
        sequence_length=run.sequence_length,
        bytes_per_parameter=18 if run.bytes_per_parameter is None else run.bytes_per_parameter,
        state_bytes=states,
        memory=_memory(run),
        microbatches=(run.microbatch,),
        attention=run.attention,
        context_parallel_degrees=(run.cp,),
        context_parallel=run.context_parallel,
        capacity_factor=run.capacity_factor,
        expert_imbalance=run.expert_imbalance,
        achievable=run.achievable,
        algorithms=run.algorithms,
        collectives=run.collectives,
        dropout=run.dropout,
        precision=run.precision,
        configurations=(configuration(run),),
    )


def _search(run: RunConfiguration, degrees: Degrees) -> SearchSpace:
    """Return the search space that has the run's plan alone."""
    return SearchSpace(
        microbatch=(run.microbatch,),
        tp=(run.tp,),
        cp=(run.cp,),
        ep=(run.ep,),
        sp=(run.sequence_parallel,),
        dp=(degrees.replicas,),
        pp=(run.pp,),
        recompute=(recompute_mode(run),),
        order=(run.order,),
        pitch=("tight",),
        zero=(run.zero,),
        zero_instances=(run.zero_instances,),
        schedule=(degrees.schedule,),
        chunks=(run.virtual_stages,) if run.virtual_stages > 1 else DEFAULTS["chunks"],
    )


def _placement(run: RunConfiguration, degrees: Degrees, spec: ModelSpec) -> Placement:
    k = configuration(run)
    inner = degrees.replicas if run.order == "dp-inner" else run.pp
    return Placement(
        run.microbatch,
        (k,) * run.pp,
        degrees.replicas,
        run.order,
        inner * k.block_size,
        _ends(spec, degrees.chunk_blocks),
        (recompute_mode(run),) * run.pp,
        zero=Zero(run.zero, run.zero, run.zero_instances),
        schedule=Schedule(degrees.schedule, run.virtual_stages),
    )


def _ends(spec: ModelSpec, chunk_blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ends of chunks of so many blocks, the model's ends on the first and last."""
    layers = sum(repeat for _, _, repeat in layer_kinds(spec))
    before = (layers - spec.layers) // 2
    ends = [before + end for end in accumulate(chunk_blocks)]
    return (*ends[:-1], layers)
