"""A problem from what a user asks for: names, a number of devices and a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator, Precision
from nest_opt.models.catalogue import find_model
from nest_opt.models.cluster_template import ClusterTemplate
from nest_opt.models.clusters import build_cluster, find_cluster
from nest_opt.models.derive import Training, default_training
from nest_opt.models.hardware import find_accelerator
from nest_opt.models.hf_config import read_hf_config
from nest_opt.models.memory import PLAIN_MEMORY, MemoryRules
from nest_opt.models.new_problem import (
    DEFAULT_CONTEXT_PARALLEL_DEGREES,
    DEFAULT_MICROBATCHES,
    new_problem,
)
from nest_opt.models.share import Attention, ContextParallel
from nest_opt.models.spec import LinearSpec, ModelSpec
from nest_opt.problem import Cluster, Configuration, HierarchicalSpec, Problem
from nest_opt.problem.base import MAX_COUNT, MAX_DEGREE, first_repeated
from nest_opt.problem.hierarchical import Algorithm, CollectiveModel
from nest_opt.problem.job import BytesPerParameter, Objective
from nest_opt.problem.networks import NetworkSpec
from nest_opt.problem.validation import build

# The longest sequence that is taken where none is asked for: published
# defaults reach 131,072 tokens, at which nobody does the bulk of training.
MAX_DEFAULT_LENGTH = 8192

MAX_TOKENS = 2**24
MAX_MICROBATCH = 2**20
MAX_FACTOR = 100
MAX_PROBLEM_NAME = 200


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a problem is derived from.

    Attributes
    ----------
    model
        A name of the catalogue, the path of a Hugging Face config.json (see
        `find_spec`), or a specification.
    cluster, devices
        A kind of cluster of the catalogue, and how many devices of it.
    accelerator
        In place of the cluster's own: one of the catalogue, or one with constants of one's own.
    global_batch
        G in sequences.
    sequence_length
        Tokens of a sequence. None: the model's default, but at most
        `MAX_DEFAULT_LENGTH`.
    bytes_per_parameter
        Of weights, gradients and optimizer states: 16, 18 or 20.
    microbatches
        Microbatch sizes to choose among; those that do not divide G are left out.
    attention
        See `nest_opt.models.share.Share`.
    context_parallel_degrees, context_parallel
        Degrees to choose among, and how keys and values are exchanged.
    capacity_factor
        Computed over routed tokens of experts: padding.
    expert_imbalance
        Tokens routed to the busiest expert-parallel rank over the mean.
    achievable
        Whether bandwidths are what large collectives attain, or the peaks.
    algorithms
        Of the collectives; on graphs and oversubscribed levels they are rings.
    collectives
        By how many ports copies leave a group of devices; None: as the kind of cluster has it.
    network
        In place of the cluster's own; its bandwidths are taken as they stand.
    dropout
        Whether attention and MLP outputs pass dropout; None: as the model's
        family was published.
    precision
        Of matrix products.
    configurations
        The configurations to choose among; None: all that the usual degrees allow.
    memory, state_bytes
        What is kept where launchers differ, and the parts of the training state
        in place of `bytes_per_parameter`.
    """

    model: str | ModelSpec
    cluster: str
    devices: int
    accelerator: str | Accelerator | None = None
    global_batch: int
    sequence_length: int | None = None
    bytes_per_parameter: int = 18
    objective: Objective = "fill-drain"
    microbatches: tuple[int, ...] = DEFAULT_MICROBATCHES
    attention: Attention = "flash"
    context_parallel_degrees: tuple[int, ...] = DEFAULT_CONTEXT_PARALLEL_DEGREES
    context_parallel: ContextParallel = "ring"
    capacity_factor: Fraction = Fraction(1)
    expert_imbalance: Fraction = Fraction(1)
    achievable: bool = True
    algorithms: tuple[Algorithm, ...] = ("ring", "tree")
    collectives: CollectiveModel | None = None
    network: NetworkSpec | None = None
    dropout: bool | None = None
    precision: Precision = "bf16"
    configurations: tuple[Configuration, ...] | None = None
    memory: MemoryRules = PLAIN_MEMORY
    state_bytes: BytesPerParameter | None = None


@dataclass(frozen=True)
class DerivedProblem:
    """A derived problem and what it was derived from.

    `length_rule` says where the sequence length comes from.
    """

    request: Request
    spec: ModelSpec
    template: ClusterTemplate
    accelerator: Accelerator
    training: Training
    length_rule: str
    problem: Problem


def derive_problem(request: Request) -> DerivedProblem:
    """Derive the problem that a request asks for.

    Raises
    ------
    InstanceError
        If a name is unknown, a number out of range, or what is asked for
        contradicts the model.
    """
    spec = find_spec(request.model) if isinstance(request.model, str) else request.model
    template = find_cluster(request.cluster)
    accelerator = find_accelerator(request.accelerator or template.accelerator)
    _check(request, spec)
    length, rule = _sequence_length(spec, request.sequence_length)
    _check_tokens(max(request.microbatches), length)
    usual = default_training(spec, length)
    training = replace(
        usual,
        dropout=usual.dropout if request.dropout is None else request.dropout,
        precision=request.precision,
        memory=request.memory,
        attention=request.attention,
        context_parallel=request.context_parallel,
        capacity=request.capacity_factor,
        imbalance=request.expert_imbalance,
    )
    problem = new_problem(
        spec,
        _cluster(request),
        accelerator,
        training,
        global_batch=request.global_batch,
        bytes_per_parameter=request.state_bytes or request.bytes_per_parameter,
        objective=request.objective,
        microbatches=request.microbatches,
        context_parallel_degrees=request.context_parallel_degrees,
        configurations=request.configurations,
        name=_name(spec, f" on {request.devices} x {accelerator.name} ({template.name})"),
    )
    bandwidths = "attained by large collectives" if request.achievable else "at their peak"
    network = "a network of its own" if request.network else f"bandwidths {bandwidths}"
    note = f"{problem.note} Cluster {template.name}, {network}."
    problem = problem.model_copy(update={"note": note})
    return DerivedProblem(request, spec, template, accelerator, training, rule, problem)


def find_spec(model: str) -> ModelSpec:
    """Return the model of that name, or of the config.json at that path.

    What ends in `.json`, or has a separator of folders and is there, is a path.

    Raises
    ------
    InstanceError
        If there is no such model, or the file is not one.
    """
    path = Path(model)
    if path.suffix == ".json" or (path.name != model and _is_there(path)):
        return read_hf_config(path)
    return find_model(model)


def _is_there(path: Path) -> bool:
    """Whether a path is a file, a pipe or the like: what can be read."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # longer than paths can be, for one
        return False


def _name(spec: ModelSpec, rest: str) -> str:
    """Return a problem's name; a model's own may leave no room for the rest."""
    return spec.name[: MAX_PROBLEM_NAME - len(rest)] + rest


def _cluster(request: Request) -> Cluster:
    network = request.network
    cluster = build_cluster(
        request.cluster,
        request.devices if network is None else 1,
        request.accelerator,
        achievable=request.achievable,
    )
    is_graph = not isinstance(cluster.network, HierarchicalSpec)
    if request.collectives is not None and (network is not None or is_graph):
        raise InstanceError(
            f"--collectives: found {request.collectives}, a hierarchical network of the catalogue "
            "is needed: leave it out, or say it in the network's own file"
        )
    if network is not None:
        (kind,) = cluster.device_kinds
        devices = [{"kind": kind, "count": request.devices}]
        data = {"device_kinds": cluster.device_kinds, "devices": devices, "network": network}
        return build(Cluster, data, "--network")
    if not isinstance(cluster.network, HierarchicalSpec):
        return cluster
    # Trees of collectives are not timed where transfers share links.
    shares = any(level.oversubscription > 1 for level in cluster.network.levels)
    changed: dict[str, object] = {"algorithms": ("ring",) if shares else request.algorithms}
    if request.collectives is not None:
        changed["collectives"] = request.collectives
    levels = cluster.network.model_copy(update=changed)
    return cluster.model_copy(update={"network": levels})


def _sequence_length(spec: ModelSpec, asked: int | None) -> tuple[int, str]:
    """Return the sequence length, and where it comes from."""
    if asked is not None:
        return asked, "as asked"
    if isinstance(spec, LinearSpec):
        return 1, "default of a stack without attention"
    default = spec.sequence_length
    if default > MAX_DEFAULT_LENGTH:
        return (
            MAX_DEFAULT_LENGTH,
            f"the model's default of {default:,} is capped at {MAX_DEFAULT_LENGTH:,} unless "
            "asked for",
        )
    return default, "the model's default"


def _check(request: Request, spec: ModelSpec) -> None:
    """Refuse numbers out of range, and options that the model has no use for."""
    _check_number("global batch", request.global_batch, MAX_COUNT)
    if request.sequence_length is not None:
        _check_number("sequence length", request.sequence_length, MAX_TOKENS)
    _check_choices("microbatch", request.microbatches, MAX_MICROBATCH)
    _check_factor("capacity factor", request.capacity_factor, "experts without padding", spec)
    _check_factor("expert imbalance", request.expert_imbalance, "equally busy experts", spec)
    _check_context_parallel(request, spec)
    if request.attention != "flash" and isinstance(spec, LinearSpec):
        raise InstanceError(
            f"attention: found {request.attention!r}, none can be chosen for {spec.name}, which "
            "has no attention: leave it out"
        )


def _check_factor(item: str, factor: Fraction, one: str, spec: ModelSpec) -> None:
    """Refuse a factor on the work of experts that is out of range or has no use."""
    if not 1 <= factor <= MAX_FACTOR:
        raise InstanceError(
            f"{item}: found {float(factor):g}, 1 to {MAX_FACTOR} is needed: 1 means {one}"
        )
    if factor != 1 and (isinstance(spec, LinearSpec) or spec.moe is None):
        raise InstanceError(
            f"{item}: found {float(factor):g}, only 1 is allowed for {spec.name}, which has no "
            "experts: leave it out"
        )


def _check_context_parallel(request: Request, spec: ModelSpec) -> None:
    degrees = request.context_parallel_degrees
    _check_choices("cp", degrees, MAX_DEGREE)
    most = max(degrees)
    if most == 1:
        if request.context_parallel != "ring":
            raise InstanceError(
                f"context parallelism: found {request.context_parallel!r} with cp 1 alone, a cp "
                "above 1 is needed: ask for one, as in --cp 1,2,4, or leave it out"
            )
    elif isinstance(spec, LinearSpec):
        raise InstanceError(
            f"cp: found {most}, only 1 is allowed for {spec.name}, which has no sequence to "
            "split: leave it out"
        )
    elif request.attention != "flash":
        raise InstanceError(
            f"attention: found {request.attention!r} with cp {most}, 'flash' is needed with "
            "context parallelism, which launchers offer with fused attention only: leave out one "
            "of the two"
        )


def _check_choices(item: str, sizes: Sequence[int], most: int) -> None:
    """Refuse no size at all, one that is out of range, or one that comes twice."""
    if not sizes:
        raise InstanceError(f"{item}: found no size, 1 at least is needed: name one")
    for size in sizes:
        _check_number(item, size, most)
    repeated = first_repeated(sizes)
    if repeated is not None:
        raise InstanceError(
            f"{item}: found {repeated} twice, once is allowed: leave out one of them"
        )


def _check_tokens(microbatch: int, length: int) -> None:
    if microbatch * length > MAX_TOKENS:
        raise InstanceError(
            f"microbatch: found {microbatch} sequences of {length} tokens, at most {MAX_TOKENS} "
            "tokens in a microbatch are allowed: lower the microbatch or the sequence length"
        )


def _check_number(item: str, found: int, most: int) -> None:
    if not 1 <= found <= most:
        raise InstanceError(
            f"{item}: found {found}, a whole number from 1 to {most} is needed: correct the number"
        )
