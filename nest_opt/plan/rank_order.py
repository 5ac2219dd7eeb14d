"""Which process is which: the numbers that launchers give to the places of a plan.

An order names the five dimensions from the fastest to the slowest:
`tp-cp-ep-dp-pp` numbers the tensor-parallel ranks of a block first and the
stages last. Orders named after a runtime are those of its own source
(`docs/rank_maps.md` cites it), and refuse a plan whose groups the runtime
would not form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Literal, get_args

from nest_opt.errors import PlanError
from nest_opt.plan.plan import Plan

Dimension = Literal["tp", "cp", "ep", "dp", "pp"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)


@dataclass(frozen=True)
class RankOrder:
    """An order of ranks.

    Attributes
    ----------
    dimensions
        All five, the fastest first.
    runtime
        Whose order it is, as messages say it; None of a bare order, which
        numbers any plan and says nothing of who can launch it.
    ones
        Dimensions whose degree must be 1.
    of_pipelines
        Whether `ones` are meant for pipelines of several stages, and no others.
    """

    dimensions: tuple[Dimension, ...]
    runtime: str | None = None
    ones: tuple[Dimension, ...] = ()
    of_pipelines: bool = False

    @property
    def text(self) -> str:
        """The order in one word."""
        return "-".join(self.dimensions)


_STAGES_LAST: tuple[Dimension, ...] = ("tp", "cp", "ep", "dp", "pp")
_REPLICAS_LAST: tuple[Dimension, ...] = ("tp", "cp", "ep", "pp", "dp")

RUNTIME_ORDERS: Mapping[str, RankOrder] = {
    "megatron": RankOrder(_STAGES_LAST, "Megatron-LM"),
    "megatron-tp-pp-dp": RankOrder(
        _REPLICAS_LAST,
        "Megatron-LM with --use-tp-pp-dp-mapping",
        ones=("cp", "ep"),
        of_pipelines=True,
    ),
    "deepspeed": RankOrder(_STAGES_LAST, "DeepSpeed's pipeline engine", ones=("cp",)),
    "torchtitan": RankOrder(_STAGES_LAST, "torchtitan"),
}


def rank_order(name: str) -> RankOrder:
    """Return an order by a runtime's name, or by all five dimensions as in `tp-cp-ep-dp-pp`.

    Raises
    ------
    PlanError
        If it is neither.
    """
    if name in RUNTIME_ORDERS:
        return RUNTIME_ORDERS[name]
    found = next((each for each in permutations(DIMENSIONS) if "-".join(each) == name), None)
    if found is None:
        raise PlanError(
            f"order: found {name[:60]!r}, one of {', '.join(RUNTIME_ORDERS)} is needed, or tp, cp, "
            "ep, dp and pp from the fastest to the slowest, as in tp-cp-ep-dp-pp: correct it"
        )
    return RankOrder(found)


def check_order(order: RankOrder, plan: Plan) -> None:
    """Refuse an order whose runtime forms other groups than the plan has.

    Raises
    ------
    PlanError
        If stages differ in tp, if cp and ep are both above 1 (runtimes take
        expert-parallel ranks out of context-parallel ones, the blocks of a
        plan have them side by side), or if a degree must be 1.
    """
    if order.runtime is None:
        return
    remedy = f"name the bare order {order.text}, if that is what your launcher makes of it"
    tps = sorted({k.tp for k in plan.configurations})
    if len(tps) > 1:
        raise PlanError(
            f"stages: found tp {', '.join(map(str, tps))}, one for all stages is needed by "
            f"{order.runtime}: {remedy}"
        )
    for name in order.ones if len(plan.stages) > 1 or not order.of_pipelines else ():
        degree = getattr(plan, name)
        if degree > 1:
            raise PlanError(f"{name}: found {degree}, 1 is needed by {order.runtime}: {remedy}")
    if plan.cp > 1 and plan.ep > 1:
        raise PlanError(
            f"cp, ep: found {plan.cp} and {plan.ep}, 1 of either is needed by {order.runtime}, "
            f"which takes the ranks of ep out of those of cp: {remedy}"
        )
