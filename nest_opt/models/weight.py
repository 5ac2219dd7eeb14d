"""One weight of a model: its shape, how parallelism shares it out, who multiplies by it.

Matrices are (outputs, inputs). The splits are those of Megatron-LM
(arXiv:1909.08053, section 3; `docs/models.md` says where its releases differ).
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from nest_opt.errors import InstanceError

Split = Literal["column", "row", "vocabulary", "replicated"]
Tokens = Literal["all", "routed", "first"]
Role = Literal[
    "embedding", "norm", "attention", "mlp", "router", "expert", "shared expert", "pooler", "head"
]
ParameterClass = Literal["dense", "expert"]


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One tensor of trained parameters, or equal tensors of all experts of a layer.

    Attributes
    ----------
    name
        Unique within its list.
    role
        The part of the layer that it belongs to.
    shape
        Of one copy; a matrix is (outputs, inputs).
    split
        "column": tensor-parallel ranks share the outputs; "row": the inputs;
        "vocabulary": the first axis, padded to a multiple of the ranks;
        "replicated": each rank holds all of it.
    units
        Equal pieces of the split axis, such as heads, that stay whole; None
        where any divisor of the axis will do.
    shareable
        With fewer units than ranks, ranks / units ranks hold the same one.
    parameter_class, copies, visited
        "expert" weights have one copy per expert, of which a token visits
        `visited`; expert parallelism shares out the copies.
    tokens
        What multiplies by the weight: "all" tokens, "routed" (each token by
        `visited` of the copies), the "first" token of a sequence, or None.
    tied
        The parameters are those of the token embedding, counted there.
    """

    name: str
    role: Role
    shape: tuple[int, ...]
    split: Split = "replicated"
    units: int | None = None
    shareable: bool = False
    parameter_class: ParameterClass = "dense"
    copies: int = 1
    visited: int = 1
    tokens: Tokens | None = None
    tied: bool = False

    @property
    def parameters(self) -> int:
        """Parameters of all copies; none where tied."""
        return 0 if self.tied else self.copies * prod(self.shape)

    @property
    def active_parameters(self) -> int:
        """Parameters of the copies that a token visits; none where tied."""
        return 0 if self.tied else self.visited * prod(self.shape)

    def rank_shape(self, tp: int) -> tuple[int, ...]:
        """Return the shape of one copy's part on a tensor-parallel rank.

        Parameters
        ----------
        tp
            Ranks of the tensor-parallel group.

        Raises
        ------
        InstanceError
            If the ranks cannot share the split axis evenly.
        """
        _check_degree("tp", tp)
        if self.split == "replicated":
            return self.shape
        axis = len(self.shape) - 1 if self.split == "row" else 0
        length = self.shape[axis]
        part = -(-length // tp) if self.split == "vocabulary" else self._part(length, tp)
        return (*self.shape[:axis], part, *self.shape[axis + 1 :])

    def _part(self, length: int, tp: int) -> int:
        units = self.units or length
        if units % tp == 0:
            return length // tp
        if self.shareable and tp % units == 0:
            return length // units
        also = ", or a multiple of it," if self.shareable else ""
        raise InstanceError(
            f"weight {self.name!r}: found {tp} tensor-parallel ranks, a divisor of {units}{also} "
            "is needed: change tp"
        )

    def rank_copies(self, ep: int) -> int:
        """Return the copies on one expert-parallel rank: all, unless of an expert.

        Raises
        ------
        InstanceError
            If the ranks cannot share the experts evenly.
        """
        _check_degree("ep", ep)
        if self.parameter_class == "dense":
            return self.copies
        if self.copies % ep:
            raise InstanceError(
                f"weight {self.name!r}: found {ep} expert-parallel ranks, a divisor of "
                f"{self.copies} is needed (experts): change ep"
            )
        return self.copies // ep


def _check_degree(item: str, found: int) -> None:
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise InstanceError(
            f"{item}: found {found!r}, a whole number from 1 is needed: correct the degree"
        )
