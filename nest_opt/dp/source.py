"""What the search asks of a cost model: cells in groups, their bounds and matrices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import Array, Chain
from nest_opt.dp.chunks import ChunkPlan
from nest_opt.dp.cuts import EndsAndOrder, Held
from nest_opt.plan.placement import Cell
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule
from nest_opt.problem.zero import NOT_SHARDED, Zero


@dataclass(frozen=True)
class Group:
    """Cells that share everything but rank order and pitch.

    `bound_ps` is a lower bound on all its cells; `place` orders equals: fewer
    devices, fewer stages, smaller d, b, tp, cp, ep, then sp, smaller z and h, and
    the schedule. With several `levels` it stands for the groups of that many ZeRO
    levels, and `zero` says nothing.
    """

    bound_ps: int
    devices: int
    stages: int
    replicas: int
    microbatch: int
    configuration: Configuration
    rounds: int
    zero: Zero = NOT_SHARDED
    schedule: Schedule = ONE_F_ONE_B
    levels: int = 1

    @property
    def pair(self) -> tuple[int, Configuration]:
        """(microbatch size, configuration)."""
        return self.microbatch, self.configuration

    @property
    def place(self) -> tuple[object, ...]:
        """The group's place among equals."""
        return (
            self.devices,
            self.stages,
            self.replicas,
            self.microbatch,
            self.configuration,
            self.zero,
            self.schedule,
        )


class Bundle:
    """Groups that are listed together, each with a bound, and made when asked for.

    Parameters
    ----------
    bounds
        A lower bound for every group, shape (groups,); floats may be off by
        their rounding, which `bound_ps` allows for.
    group
        Returns the group of a place in `bounds`.
    levels
        How many groups each of these stands for.
    fitting
        Returns which groups may fit in memory, shape (groups,); all if it is None.
    """

    def __init__(
        self,
        bounds: npt.NDArray[np.float64],
        group: Callable[[int], Group],
        levels: int = 1,
        fitting: Callable[[], npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        self.levels = levels
        self._bounds = bounds
        self._order: npt.NDArray[np.int64] | None = None
        self._group, self._fitting = group, fitting

    def __len__(self) -> int:
        return len(self._bounds if self._order is None else self._order)

    @property
    def least_ps(self) -> int:
        """A bound on all groups."""
        return _below(float(self._bounds.min()))

    def open(self) -> int:
        """Look at the memory of all groups at once; return how many are left."""
        fitting = np.ones(len(self._bounds), np.bool_) if self._fitting is None else self._fitting()
        order = np.argsort(self._bounds, kind="stable")
        self._order = order[fitting[order]]
        return len(self._order)

    def bound_ps(self, rank: int) -> int:
        """Return the bound of the group with the rank-th least one."""
        return _below(float(self._bounds[self._place(rank)]))

    def group(self, rank: int) -> Group:
        """Return the group with the rank-th least bound."""
        return replace(self._group(self._place(rank)), bound_ps=self.bound_ps(rank))

    def _place(self, rank: int) -> int:
        if self._order is None:
            self.open()
        assert self._order is not None
        return int(self._order[rank])


def _below(bound: float) -> int:
    """Return a whole number that a float of a dozen roundings is surely not below."""
    return int(bound * (1 - 1e-14))


@dataclass(frozen=True)
class MemoryCase:
    """Degrees as far as memory depends on them.

    `most_stages` is the largest S that the devices allow.
    """

    microbatch: int
    configuration: Configuration
    replicas: int
    rounds: int
    most_stages: int
    usable_bytes: int
    zero: Zero = NOT_SHARDED
    schedule: Schedule = ONE_F_ONE_B


class CellSource(Protocol):
    """A cost model as the search sees it."""

    def relaxed(self, problem: Problem) -> "CellSource":
        """Return the cells under fewer constraints, or with a padded batch: for `fits` alone."""
        ...

    @property
    def layers(self) -> int:
        """n, the number of layers."""
        ...

    @property
    def last_cut(self) -> int:
        """The cut after all layers: matrices have one row and column more."""
        ...

    def stages(self, path: Sequence[int]) -> EndsAndOrder:
        """Return ends and order of the stages that end at these cuts."""
        ...

    def bundles(self, with_dominated: bool = True) -> Iterator[Bundle]:
        """Yield every group that may hold a legal plan, with a proved bound each.

        Each cell of a dominated group has one elsewhere that costs no more and
        wins the tie.
        """
        ...

    @property
    def refinements(self) -> int:
        """How many better bounds there are."""
        ...

    def refined(self, group: Group, step: int) -> Sequence[Group]:
        """Return the groups that a group stands for, with better, costlier bounds.

        None of them if nothing fits. `step` counts from 0; each step costs
        more than the one before it.
        """
        ...

    def cells(self, group: Group) -> Sequence[Cell]:
        """Return the cells of a group, in the order of ties."""
        ...

    def cell_count(self) -> int:
        """Return the number of cells of all groups."""
        ...

    def weights(self, cell: Cell) -> ObjectiveWeights:
        """Return the objective of a cell."""
        ...

    def bound_ps(self, cell: Cell) -> int | None:
        """Return a lower bound on a cell from its own levels; None if nothing fits."""
        ...

    def chain(self, cell: Cell) -> Chain:
        """Return the matrices of a cell whose stages are intervals."""
        ...

    def chunk_plan(self, cell: Cell) -> ChunkPlan | None:
        """Return the best plan of an interleaved cell; None if nothing fits."""
        ...

    def chunk_memory(self, case: MemoryCase, stages: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the least bytes of the heaviest stage, with ends, where chunks are interleaved.

        None if no way to cut keeps the constraints.
        """
        ...

    def mode(self, cell: Cell, stage: int, low: int, high: int) -> Recompute:
        """Return the mode that the matrices assume for a stage."""
        ...

    def memory_cases(self) -> Iterator[MemoryCase]:
        """Yield the cases that differ in memory, whether or not anything fits."""
        ...

    def stages_with_room(self, case: MemoryCase, usable_bytes: int) -> Sequence[int]:
        """Return the S that may fit in so many usable bytes: all others need more."""
        ...

    def allows(self, case: MemoryCase, stages: int) -> bool:
        """Whether some legal device map with S stages exists, memory aside."""
        ...

    def memory_floor(self, case: MemoryCase) -> tuple[int, int]:
        """Return (bytes that the largest layer needs alone, bytes of all states)."""
        ...

    def memory(self, case: MemoryCase, place: int) -> Array:
        """Return the least bytes of every interval as a stage of such a place, pins aside."""
        ...

    def places(self, case: MemoryCase, stages: int) -> Sequence[int]:
        """Return what the memory of each of S stages depends on, first stage first."""
        ...

    def held(self, stages: int) -> list[Held] | None:
        """Return the layers that each of S stages must hold; None if pins want more stages."""
        ...

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return a matrix that is `INFINITE` for stages without the layers to be held."""
        ...
