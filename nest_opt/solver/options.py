"""What may be asked of a solve."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nest_opt.errors import SolverError

Setting = bool | int | float | str


@dataclass(frozen=True)
class SolverOptions:
    """Limits and settings of one solve.

    Attributes
    ----------
    time_limit_s, node_limit
        Limits, None for none.
    relative_gap
        The solve may stop when (value - bound) / value is at most this; 0
        asks for a proof.
    settings
        HiGHS options by name. Names or values that HiGHS does not know are
        refused: it would ignore them without a word.
    """

    time_limit_s: float | None = None
    node_limit: int | None = None
    relative_gap: float = 0.0
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value, least in (
            ("time_limit_s", self.time_limit_s, 0),
            ("node_limit", self.node_limit, 0),
            ("relative_gap", self.relative_gap, 0),
        ):
            if value is not None and not value >= least:
                raise SolverError(f"{name}: found {value}, at least {least} is needed: raise it")
