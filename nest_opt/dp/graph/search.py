"""The search: plans along single orders first, then passes under growing limits."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from nest_opt.cost.graph_table import GraphTable
from nest_opt.dp.graph.blocks import Blocks
from nest_opt.dp.graph.devices import DeviceCounts, Relaxation, relaxations
from nest_opt.dp.graph.followers import merge_followers
from nest_opt.dp.graph.order import breadth_first, depth_first
from nest_opt.dp.graph.sweep import Found, Sweep
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.plan.progress import Progress
from nest_opt.problem.downsets import count_downsets, members

MOST_DOWNSETS = 200_000
# Downsets times counts of devices in use: 14 bytes each, doubled while they grow.
MOST_VALUES = 40_000_000
_STEPS_BETWEEN_REPORTS = 256

Status = Literal["optimal", "infeasible", "interrupted", "refused"]


@dataclass(frozen=True)
class GraphSearchResult:
    """What the search found.

    Attributes
    ----------
    status
        `optimal`, `infeasible`, `interrupted` with the best so far, or
        `refused`.
    out_of_time
        Whether the time limit was what interrupted it.
    placement, value_ps
        The best placement and its value, None where there is none.
    bound_ps
        No placement has a lower value; None if infeasible or refused.
    blocks, downsets
        Sets of layers that share a stage, and downsets of their order (one
        more than allowed if there are more).
    refusal
        Why the search was refused, and what to do; None if it was not.
    wall_s
        Seconds.
    """

    status: Status
    out_of_time: bool
    placement: GraphPlacement | None
    value_ps: int | None
    bound_ps: int | None
    blocks: int
    downsets: int
    refusal: str | None
    wall_s: float


def search(
    table: GraphTable,
    progress: Progress | None = None,
    most_downsets: int = MOST_DOWNSETS,
    time_limit_s: float | None = None,
) -> GraphSearchResult:
    """Find the best placement of a placement graph with a contiguous split.

    Parameters
    ----------
    table
        The coefficients.
    progress
        Called with (downsets done in this pass, downsets, best value in ps or
        None).
    most_downsets
        Graphs with more are refused, as are those of split `any`.
    time_limit_s
        Seconds after which to end the search with what it has: the best plan
        along the listed order at least, if there is one.

    A KeyboardInterrupt ends the search with what it has.
    """
    begin = time.perf_counter()
    blocks = merge_followers(table)
    counts = DeviceCounts.of(blocks)
    downsets = count_downsets(blocks, most_downsets)
    end = None if time_limit_s is None else begin + time_limit_s
    run = _Run(blocks, counts, downsets, progress, end)
    refusal = _refusal(table, counts, downsets, most_downsets)
    status: Status = "refused"
    out_of_time = False
    if refusal is None:
        try:
            run.solve()
            status = "infeasible" if run.best is None else "optimal"
        except KeyboardInterrupt:
            status = "interrupted"
        except _OutOfTimeError:
            status, out_of_time = "interrupted", True
    best = run.best
    return GraphSearchResult(
        status=status,
        out_of_time=out_of_time,
        placement=None if best is None else _placement(table, blocks, best),
        value_ps=None if best is None else best.value_ps,
        bound_ps=run.bound_ps if status in ("optimal", "interrupted") else None,
        blocks=len(blocks),
        downsets=downsets,
        refusal=refusal,
        wall_s=time.perf_counter() - begin,
    )


def _refusal(
    table: GraphTable, counts: DeviceCounts, downsets: int, most_downsets: int
) -> str | None:
    remedy = "use `nest-opt exact`, which solves an integer program instead"
    if not table.contiguous:
        return (
            "job.split: found 'any', the dynamic program over downsets needs 'contiguous': "
            f"{remedy}, or ask for a contiguous split"
        )
    if downsets > most_downsets:
        return (
            f"model.edges: found more than {most_downsets:,} downsets of the order of the layers, "
            f"{most_downsets:,} are allowed in the dynamic program: {remedy}"
        )
    if downsets * counts.total > MOST_VALUES:
        return (
            f"cluster.devices: found {downsets:,} downsets times {counts.total:,} counts of "
            f"devices in use, {MOST_VALUES:,} in all are allowed in the dynamic program: {remedy}"
        )
    return None


class _OutOfTimeError(Exception):
    """The time limit came."""


class _Run:
    """The passes, the best plan so far, and what no plan is below."""

    def __init__(
        self,
        blocks: Blocks,
        counts: DeviceCounts,
        downsets: int,
        progress: Progress | None,
        end: float | None,
    ) -> None:
        self._blocks, self._counts, self._downsets = blocks, counts, downsets
        self._progress, self._end = progress, end
        self.best: Found | None = None
        self.bound_ps = 0

    def solve(self) -> None:
        """Find the best plan, if there is one."""
        blocks = self._blocks
        if not blocks.layers:
            self.best = Found(0, ())
            return
        if not all(any(kind.supported[n] for kind in blocks.kinds) for n in range(len(blocks))):
            return
        bounds = relaxations(blocks, self._counts)
        self.bound_ps = max(bound.least_value() for bound in bounds)
        for number, order in enumerate(self._orders()):
            # The first is not cut short: some plan is better than none.
            self._try_order(order, self._watch if number else lambda: None)
        limit = self.bound_ps + self.bound_ps // 4
        while self.bound_ps <= self._most():
            limit = min(limit, self._most())
            found = self._pass(blocks, bounds, limit)
            if found is not None:
                self.best, self.bound_ps = found, found.value_ps
                return
            self.bound_ps = limit + 1
            limit = 2 * limit + 1
        if self.best is not None:
            self.bound_ps = self.best.value_ps

    def _most(self) -> int:
        """Return the most that a plan of interest may cost; no load exceeds it."""
        if self.best is not None:
            return self.best.value_ps - 1
        return max(sum(kind.time_ps) for kind in self._blocks.kinds) + sum(
            time for _, time in self._blocks.tensors
        )

    def _orders(self) -> Iterator[list[int]]:
        yield list(range(len(self._blocks)))
        yield breadth_first(self._blocks.after)
        yield depth_first(self._blocks.after)

    def _try_order(self, order: list[int], step: Callable[[], None]) -> None:
        """Look for a better plan whose stages are intervals of one order."""
        blocks = self._blocks.renumbered(order).as_chain()
        bounds = relaxations(blocks, self._counts)
        found = Sweep(blocks, self._counts, bounds, self._most()).run(step)
        if found is not None:
            stages = tuple(
                (kind, sum(1 << order[place] for place in members(inside)))
                for kind, inside in found.stages
            )
            self.best = Found(found.value_ps, stages)

    def _watch(self) -> None:
        if self._end is not None and time.perf_counter() >= self._end:
            raise _OutOfTimeError

    def _pass(self, blocks: Blocks, bounds: list[Relaxation], limit: int) -> Found | None:
        done = 0

        def step() -> None:
            nonlocal done
            self._watch()
            if self._progress and done % _STEPS_BETWEEN_REPORTS == 0:
                best = None if self.best is None else self.best.value_ps
                self._progress(done, self._downsets, best)
            done += 1

        return Sweep(blocks, self._counts, bounds, limit).run(step)


def _placement(table: GraphTable, blocks: Blocks, found: Found) -> GraphPlacement:
    """Return the stages with their layers, each kind's devices taken in turn."""
    unused = [iter(kind.devices) for kind in table.kinds]
    return GraphPlacement(
        tuple(
            GraphStage(
                next(unused[kind]),
                tuple(sorted(layer for n in members(inside) for layer in blocks.layers[n])),
            )
            for kind, inside in found.stages
        )
    )


__all__ = ["MOST_DOWNSETS", "GraphSearchResult", "search"]
