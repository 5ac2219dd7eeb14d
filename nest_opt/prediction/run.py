"""A run as launchers state it: every degree fixed, nothing left to search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import PRECISIONS, Accelerator, Precision
from nest_opt.models.share import Attention, ContextParallel
from nest_opt.models.spec import LinearSpec, ModelSpec
from nest_opt.problem.base import MAX_COUNT, MAX_DEGREE
from nest_opt.problem.hierarchical import Algorithm, CollectiveModel
from nest_opt.problem.profile import RECOMPUTE_MODES, Recompute
from nest_opt.problem.schedule import SCHEDULES, ScheduleName

RunOrder = Literal["dp-inner", "pp-inner"]
ORDERS: tuple[RunOrder, ...] = ("dp-inner", "pp-inner")
ZERO_LEVELS = (0, 1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class RunConfiguration:
    """What a launcher is told.

    Attributes
    ----------
    model, cluster, devices, accelerator, global_batch, sequence_length
        As in `nest_opt.models.request.Request`.
    microbatch
        Sequences in a microbatch of one data-parallel rank.
    tp, pp, cp
        Tensor-, pipeline- and context-parallel degree.
    dp
        Data-parallel degree, expert-parallel ranks included: devices / (tp * pp
        * cp), which it is where it is None.
    ep
        Expert-parallel degree: a divisor of `dp`, from whose ranks it is made.
    virtual_stages
        v, chunks of layers that each pipeline stage has (interleaved 1F1B).
    sequence_parallel
        Whether tensor-parallel ranks share out the sequence between them.
    recompute
        What stages compute again: nothing, the attention core, or whole blocks.
    zero, zero_instances
        ZeRO level (1 is Megatron-LM's distributed optimizer, 3 is full FSDP)
        and the runs of replicas that each hold all states (HSDP).
    schedule
        None: `interleaved` where there are virtual stages, else `1f1b`.
    precision
        Of matrix products.
    stage_layers
        Blocks of each chunk in the order of the model: pp * v numbers, chunk c
        of stage i being number c * pp + i. Embedding and head are no blocks:
        they go with the first and the last. None: equally many each.
    order
        Rank order: `dp-inner` is tp, cp, ep, dp, pp from fastest to slowest,
        Megatron-LM's and torchtitan's; `pp-inner` has pp before dp.
    overlap_gradients
        Whether gradients are synchronised while the last backward pass goes on
        (Megatron-LM's --overlap-grad-reduce, PyTorch's DDP).
    runtime
        Whose memory rules hold (`nest_opt.models.memory`): `megatron`,
        `deepspeed` or `torchtitan`. None: none in particular.
    fused_loss
        Whether the loss is compiled, so that no 32-bit logits are kept.
    bytes_per_parameter
        As in `Request`; None: the runtime's, or 18.
    attention, context_parallel, capacity_factor, expert_imbalance, achievable, algorithms,
    collectives
        As in `Request`.
    dropout
        Whether attention and MLP outputs pass dropout; None: as the model's
        family was published.
    """

    model: str | ModelSpec
    cluster: str
    devices: int
    accelerator: str | Accelerator | None = None
    global_batch: int
    sequence_length: int | None = None
    microbatch: int = 1
    tp: int = 1
    pp: int = 1
    dp: int | None = None
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    zero: int = 0
    zero_instances: int = 1
    schedule: ScheduleName | None = None
    precision: Precision = "bf16"
    stage_layers: tuple[int, ...] | None = None
    order: RunOrder = "dp-inner"
    overlap_gradients: bool = False
    runtime: str | None = None
    fused_loss: bool = False
    bytes_per_parameter: int | None = None
    attention: Attention = "flash"
    context_parallel: ContextParallel = "ring"
    dropout: bool | None = None
    capacity_factor: Fraction = Fraction(1)
    expert_imbalance: Fraction = Fraction(1)
    achievable: bool = True
    algorithms: tuple[Algorithm, ...] = ("ring", "tree")
    collectives: CollectiveModel | None = None


@dataclass(frozen=True)
class Degrees:
    """The degrees of a run that contradict neither each other nor the model.

    Attributes
    ----------
    data
        The launcher's data-parallel degree.
    replicas
        d of the cost model: `data` / ep.
    rounds
        Microbatches that each pipeline runs per batch.
    schedule
        The pipeline schedule.
    chunk_blocks
        Blocks of each chunk, in the order of the model.
    """

    data: int
    replicas: int
    rounds: int
    schedule: ScheduleName
    chunk_blocks: tuple[int, ...]


def check_run(run: RunConfiguration, spec: ModelSpec) -> Degrees:
    """Return what follows from a run's degrees.

    Raises
    ------
    InstanceError
        If two of them contradict each other, or one the model; the message
        names both.
    """
    for name, found, most in _numbers(run):
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
            shown = found if not isinstance(found, int) or abs(found) < 10**20 else "20 digits"
            raise InstanceError(
                f"{name}: found {shown}, a whole number from 1 to {most} is needed: correct it"
            )
    for name, value, allowed in _choices(run):
        # True and 1.0 equal 1.
        if value not in allowed or type(value) is not type(allowed[0]):
            raise InstanceError(
                f"{name}: found {str(value)[:40]!r}, one of {', '.join(map(str, allowed))} is "
                "needed: choose one"
            )
    data = _data_parallel(run)
    _check_model(run, spec)
    if data % run.ep:
        raise InstanceError(
            f"ep: found {run.ep} with dp {data}, a divisor of dp is needed (expert-parallel ranks "
            "are data-parallel ranks): change one of the two"
        )
    replicas = data // run.ep
    if run.zero_instances > 1 and run.zero == 0:
        raise InstanceError(
            f"zero instances: found {run.zero_instances} with zero 0, a level from 1 is needed, "
            "which shards something: raise zero, or leave them out"
        )
    if replicas % run.zero_instances:
        raise InstanceError(
            f"zero instances: found {run.zero_instances} with {replicas} replicas (dp / ep), a "
            "divisor is needed: change one of the two"
        )
    streams = run.microbatch * data
    if run.global_batch % streams:
        raise InstanceError(
            f"global batch: found {run.global_batch}, a multiple of {streams} is needed "
            f"(microbatch {run.microbatch} * dp {data}): change one of the three"
        )
    schedule = _schedule(run, run.global_batch // streams)
    blocks = _chunk_blocks(run, spec)
    return Degrees(data, replicas, run.global_batch // streams, schedule, blocks)


def _numbers(run: RunConfiguration) -> Iterator[tuple[str, int, int]]:
    yield "devices", run.devices, MAX_DEGREE
    yield "global batch", run.global_batch, MAX_COUNT
    yield "microbatch", run.microbatch, MAX_DEGREE
    for name in ("tp", "pp", "cp", "ep"):
        yield name, getattr(run, name), MAX_DEGREE
    if run.dp is not None:
        yield "dp", run.dp, MAX_DEGREE
    for name in ("sequence_length", "bytes_per_parameter"):
        if getattr(run, name) is not None:
            yield name.replace("_", " "), getattr(run, name), MAX_COUNT
    yield "virtual stages", run.virtual_stages, MAX_DEGREE
    yield "zero instances", run.zero_instances, MAX_DEGREE


def _choices(run: RunConfiguration) -> Iterator[tuple[str, object, Sequence[object]]]:
    yield "zero", run.zero, ZERO_LEVELS
    yield "recompute", run.recompute, RECOMPUTE_MODES
    yield "precision", run.precision, PRECISIONS
    yield "order", run.order, ORDERS
    yield "attention", run.attention, ("flash", "stored")
    for algorithm in run.algorithms or ("",):
        yield "algorithms", algorithm, get_args(Algorithm)
    yield "context parallelism", run.context_parallel, ("ring", "all-gather")
    if run.schedule is not None:
        yield "schedule", run.schedule, SCHEDULES


def _data_parallel(run: RunConfiguration) -> int:
    """Return the data-parallel degree; all devices are used."""
    inner = run.tp * run.pp * run.cp
    product = f"tp {run.tp} * pp {run.pp} * cp {run.cp}"
    if run.dp is None:
        if run.devices % inner:
            raise InstanceError(
                f"devices: found {run.devices}, a multiple of {inner} is needed ({product}): "
                "change one of them"
            )
        return run.devices // inner
    if inner * run.dp != run.devices:
        raise InstanceError(
            f"devices: found {run.devices}, {inner * run.dp} is needed ({product} * dp "
            f"{run.dp}): change one of them"
        )
    return run.dp


def _check_model(run: RunConfiguration, spec: ModelSpec) -> None:
    """Refuse degrees that do not divide what they split."""
    if run.sequence_parallel and run.tp == 1:
        raise InstanceError(
            "sequence parallelism: found it with tp 1, a tp above 1 is needed, whose ranks share "
            "the sequence: raise tp, or leave it out"
        )
    if isinstance(spec, LinearSpec):
        for name, found in (("ep", run.ep), ("cp", run.cp)):
            if found > 1:
                raise InstanceError(
                    f"{name}: found {found}, only 1 is allowed for {spec.name}: leave it out"
                )
        return
    if spec.heads % run.tp:
        raise InstanceError(
            f"tp: found {run.tp}, a divisor of {spec.heads} is needed (attention heads of "
            f"{spec.name}): change tp"
        )
    experts = spec.moe.experts if spec.moe else 1
    if experts % run.ep:
        raise InstanceError(
            f"ep: found {run.ep}, a divisor of {experts} is needed (experts of {spec.name}): "
            "change ep"
        )


def _schedule(run: RunConfiguration, rounds: int) -> ScheduleName:
    """Return the schedule, or refuse one that does not run so many rounds on the stages."""
    interleaved = run.virtual_stages > 1
    schedule = run.schedule or ("interleaved" if interleaved else "1f1b")
    if interleaved != (schedule == "interleaved"):
        wanted = "2 or more are" if schedule == "interleaved" else "1 is"
        raise InstanceError(
            f"virtual stages: found {run.virtual_stages} with schedule {schedule}, {wanted} "
            "needed: change one of the two"
        )
    if interleaved and run.pp == 1:
        raise InstanceError(
            f"virtual stages: found {run.virtual_stages} with pp 1, a pp above 1 is needed to take "
            "turns with: raise pp, or leave them out"
        )
    if interleaved and rounds % run.pp:
        raise InstanceError(
            f"microbatches: found {rounds} in each pipeline and batch, a multiple of {run.pp} is "
            "needed (pp, under interleaved 1F1B): change the global batch, the microbatch or pp"
        )
    if schedule == "zb-h1" and rounds < run.pp:
        raise InstanceError(
            f"microbatches: found {rounds} in each pipeline and batch, {run.pp} at least are "
            "needed (pp, under zb-h1): change the global batch, the microbatch or pp"
        )
    return schedule


def _chunk_blocks(run: RunConfiguration, spec: ModelSpec) -> tuple[int, ...]:
    """Return the blocks of each chunk: as stated, or equally many as launchers split."""
    chunks = run.pp * run.virtual_stages
    named = f"pp {run.pp} * virtual stages {run.virtual_stages}"
    if run.stage_layers is not None:
        _check_stage_layers(run.stage_layers, chunks, named, spec)
        return run.stage_layers
    if spec.layers % chunks:
        raise InstanceError(
            f"layers: found {spec.layers} of {spec.name}, a multiple of {chunks} is needed "
            f"({named}): change a degree, or state the layers of each stage"
        )
    return (spec.layers // chunks,) * chunks


def _check_stage_layers(blocks: Sequence[int], chunks: int, named: str, spec: ModelSpec) -> None:
    if len(blocks) != chunks:
        raise InstanceError(
            f"stage layers: found {len(blocks)} numbers, {chunks} are needed ({named}): give one "
            "for each chunk of layers"
        )
    ends_alone = 0 if isinstance(spec, LinearSpec) else 1
    for number, count in enumerate(blocks):
        least = 0 if number in (0, chunks - 1) and ends_alone and chunks > 1 else 1
        if isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise InstanceError(
                f"stage layers: found {count} in place {number}, at least {least} is needed: "
                "correct it"
            )
    if sum(blocks) != spec.layers:
        raise InstanceError(
            f"stage layers: found {sum(blocks)} in all, {spec.layers} are needed (layers of "
            f"{spec.name}): correct them"
        )
