"""ZeRO levels: what is sharded over the copies of a parameter, and over which of them."""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag

from nest_opt.problem.base import NUMBER, OBJECT, Degree, Frozen

ZeroLevel = Annotated[int, Field(strict=True, ge=0, le=3)]


class Zero(NamedTuple):
    """z of each parameter class, and h: it is false where nothing is sharded.

    The d replicas are h equal runs of consecutive ones. States are sharded
    over the copies inside a run and replicated between runs: the hybrid
    sharding of PyTorch's FSDP (Zhao et al. 2023, arXiv:2304.11277, section
    3.2.2), `data_parallel_replicate_degree` of torchtitan, and Megatron-LM's
    `num_distributed_optimizer_instances`.

    Attributes
    ----------
    dense, expert
        The level of each class. 0 shards nothing, 1 optimizer states, 2
        gradients too, 3 weights too.
    instances
        h, a divisor of d; with 1 states are sharded over all copies.
    """

    dense: int = 0
    expert: int = 0
    instances: int = 1

    def __bool__(self) -> bool:
        return self.dense > 0 or self.expert > 0

    def __str__(self) -> str:
        """`1`, or `1/0` where levels of dense and expert parameters differ; ` x2` is h = 2."""
        levels = str(self.dense)
        if self.expert != self.dense:
            levels += f"/{self.expert}"
        return levels if self.instances == 1 else f"{levels} x{self.instances}"

    def level(self, parameter_class: Literal["dense", "expert"]) -> int:
        """Return z of a class."""
        return self.dense if parameter_class == "dense" else self.expert

    def runs(self, parameter_class: Literal["dense", "expert"]) -> int:
        """Return how many groups the copies of a class are in: h, or 1 if it is not sharded."""
        return self.instances if self.level(parameter_class) else 1


NOT_SHARDED = Zero()


class ZeroFields(Frozen):
    """What a file says of ZeRO where one number is not enough."""

    dense: ZeroLevel
    expert: ZeroLevel
    instances: Degree = 1


def _form(value: object) -> str:
    """Return which of the two forms a value is meant to have: one error is enough."""
    return OBJECT if isinstance(value, Mapping | ZeroFields) else NUMBER


# One level for both classes over all copies, or all there is to say.
ZeroValue = Annotated[
    Annotated[ZeroLevel, Tag(NUMBER)] | Annotated[ZeroFields, Tag(OBJECT)], Discriminator(_form)
]


def zero_of(value: int | ZeroFields) -> Zero:
    """Return what a file says."""
    if isinstance(value, ZeroFields):
        return Zero(value.dense, value.expert, value.instances)
    return Zero(value, value)


def zero_json(zero: Zero) -> int | dict[str, int]:
    """Return what a file says, as JSON data: a number where that is enough."""
    if zero.dense == zero.expert and zero.instances == 1:
        return zero.dense
    return zero._asdict()


def zero_value(zero: Zero) -> int | ZeroFields:
    """Return what a file says: a number where that is enough."""
    written = zero_json(zero)
    return written if isinstance(written, int) else ZeroFields(**written)
