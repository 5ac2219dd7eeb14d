"""The options that name a model, a cluster and a batch in place of a problem file."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.number_types import factor, whole, whole_list

if TYPE_CHECKING:
    from nest_opt.models.request import Request
    from nest_opt.models.spec import ModelSpec

OBJECTIVES = ("fill-drain", "nest", "bottleneck")
ATTENTIONS = ("flash", "stored")
CONTEXT_PARALLEL = ("ring", "all-gather")
COLLECTIVES = ("flat", "ports")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the options say; None (or False) where they say nothing.

    `smallest` is None where the command has no such option.
    """

    model: str | None = None
    cluster: str | None = None
    devices: int | None = None
    smallest: bool | None = False
    global_batch: int | None = None
    sequence_length: int | None = None
    accelerator: str | None = None
    bytes_per_parameter: int | None = None
    objective: str | None = None
    microbatches: tuple[int, ...] | None = None
    attention: str | None = None
    context_parallel_degrees: tuple[int, ...] | None = None
    context_parallel: str | None = None
    capacity_factor: Fraction | None = None
    expert_imbalance: Fraction | None = None
    peak_bandwidth: bool = False
    collectives: str | None = None
    network: Path | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given."""
        return tuple(_OPTION[field.name] for field in fields(self) if self._is_given(field.name))

    @property
    def model_path(self) -> Path | None:
        """What --model says, as a path."""
        return None if self.model is None else Path(self.model)

    def _is_given(self, name: str) -> bool:
        value = getattr(self, name)
        return value is not None and value is not False

    def request(self, spec: "ModelSpec | None" = None) -> "Request":
        """Return the request, of a model other than the one named if that is given.

        Under --smallest its number of devices has no meaning.

        Raises
        ------
        click.UsageError
            If an option that is needed is missing, or two exclude each other.
        InstanceError
            If there is no such model, or its file is not one.
        """
        from nest_opt.models.request import Request, find_spec
        from nest_opt.problem.files import read_network

        self._check(needs_model=spec is None)
        values = {name: getattr(self, name) for name in _OF_REQUEST if self._is_given(name)}
        if self.network is not None:
            values["network"] = read_network(self.network)
        values["model"] = find_spec(str(self.model)) if spec is None else spec
        return Request(**{"devices": 1, **values}, achievable=not self.peak_bandwidth)

    def _check(self, needs_model: bool) -> None:
        """Refuse options that exclude each other or are missing."""
        if self.devices is not None and self.smallest:
            raise click.UsageError(
                f"--smallest: found --devices {self.devices} beside it, one of the two is "
                "allowed: leave one out"
            )
        if self.network is not None and self.smallest:
            raise click.UsageError(
                "--smallest: found --network beside it, which has a size of its own: leave one out"
            )
        for name, what in _NEEDED.items():
            excused = self.smallest if name == "devices" else name == "model" and not needs_model
            if name == "devices" and self.smallest is not None:
                what = f"{what}, or --smallest,"
            if not excused and not self._is_given(name):
                raise click.UsageError(
                    f"{_OPTION[name]}: found nothing, {what} is needed: add the option"
                )


_NEEDED = {
    "model": "a model (see `nest-opt list models`) or the path of a config.json",
    "cluster": "a kind of cluster (see `nest-opt list clusters`)",
    "devices": "a number of devices",
    "global_batch": "a number of sequences",
}
_OF_REQUEST = tuple(
    field.name
    for field in fields(Asked)
    if field.name not in {"smallest", "peak_bandwidth", "network"}
)

_DECLARATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "model": (
        "--model",
        {"metavar": "NAME|config.json", "help": "A model of the catalogue, or its config.json."},
    ),
    "cluster": ("--cluster", {"metavar": "NAME", "help": "A kind of cluster of the catalogue."}),
    "devices": ("--devices", {"type": whole, "metavar": "N", "help": "Devices of the cluster."}),
    "smallest": (
        "--smallest",
        {
            "is_flag": True,
            "help": "In place of --devices: the smallest number of them on which something fits.",
        },
    ),
    "global_batch": (
        "--global-batch",
        {"type": whole, "metavar": "N", "help": "Sequences in a global batch."},
    ),
    "sequence_length": (
        "--seq-len",
        {
            "type": whole,
            "metavar": "N",
            "help": "Tokens of a sequence; the model's default, at most 8,192, unless given.",
        },
    ),
    "accelerator": (
        "--accelerator",
        {"metavar": "NAME", "help": "An accelerator in place of the cluster's own."},
    ),
    "bytes_per_parameter": (
        "--bytes-per-parameter",
        {
            "type": whole,
            "metavar": "N",
            "help": "Of weights, gradients and optimizer states: 16 (2 + 2 + 12), 18 (2 + 4 + "
            "12, the default) or 20 (2 + 2 + 16).",
        },
    ),
    "objective": (
        "--objective",
        {"type": click.Choice(OBJECTIVES), "help": "What is minimised; fill-drain unless given."},
    ),
    "microbatches": (
        "--microbatch",
        {
            "type": whole_list,
            "metavar": "N[,N]",
            "help": "Sizes to choose among, in sequences; 1,2,4,8 unless given. Those that do not "
            "divide the global batch are left out.",
        },
    ),
    "attention": (
        "--attention",
        {
            "type": click.Choice(ATTENTIONS),
            "help": "Whether attention scores are never stored (flash, the default), or stored "
            "except by stages that recompute them.",
        },
    ),
    "context_parallel_degrees": (
        "--cp",
        {
            "type": whole_list,
            "metavar": "N[,N]",
            "help": "Context-parallel degrees to choose among; 1 unless given.",
        },
    ),
    "context_parallel": (
        "--context-parallel",
        {
            "type": click.Choice(CONTEXT_PARALLEL),
            "help": "Whether context-parallel ranks pass keys and values on while attention "
            "computes (ring, the default) or gather them before it.",
        },
    ),
    "capacity_factor": (
        "--capacity-factor",
        {
            "type": factor,
            "metavar": "X",
            "help": "Tokens that experts compute over tokens routed to them; 1 unless given.",
        },
    ),
    "expert_imbalance": (
        "--expert-imbalance",
        {
            "type": factor,
            "metavar": "X",
            "help": "Tokens routed to the busiest expert-parallel rank over the mean; 1 unless "
            "given.",
        },
    ),
    "peak_bandwidth": (
        "--peak-bandwidth",
        {
            "is_flag": True,
            "help": "Count on peak bandwidths rather than on what large collectives attain.",
        },
    ),
    "collectives": (
        "--collectives",
        {
            "type": click.Choice(COLLECTIVES),
            "help": "Whether the copies of parameters leave a group of devices by one port "
            "(flat) or by one for each rank in it (ports); as the kind of cluster has it unless "
            "given.",
        },
    ),
    "network": (
        "--network",
        {
            "metavar": "FILE",
            "type": click.Path(path_type=Path),
            "help": "A network in place of the cluster's own: the object that a problem file has "
            "as cluster.network.",
        },
    ),
}
_OPTION = {name: option for name, (option, _) in _DECLARATIONS.items()}


def request_options(
    *left_out: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command these options, as one argument `asked`.

    Some may be left out: `model`, `smallest`.
    """
    names = [name for name in _DECLARATIONS if name not in left_out]
    absent: dict[str, Any] = {"smallest": None} if "smallest" in left_out else {}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def collect(**parameters: Any) -> Any:
            asked = Asked(**{name: parameters.pop(name) for name in names}, **absent)
            return function(asked=asked, **parameters)

        command: Callable[..., Any] = collect
        for name in reversed(names):
            option, settings = _DECLARATIONS[name]
            command = click.option(option, name, **settings)(command)
        return command

    return decorate
