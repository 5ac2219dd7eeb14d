"""What the search asks of a cost model: cells in groups, their bounds and matrices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import Array, Chain
from nest_opt.dp.cuts import EndsAndOrder, Held
from nest_opt.plan.placement import Cell
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute


@dataclass(frozen=True)
class Group:
    """Cells that share everything but rank order and pitch.

    `bound_ps` is a lower bound on all its cells; `place` orders equals: fewer
    devices, fewer stages, smaller d, b, tp, cp, ep, then sp, then smaller z.
    """

    bound_ps: int
    devices: int
    stages: int
    replicas: int
    microbatch: int
    configuration: Configuration
    rounds: int
    zero: int = 0

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
        )


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
    zero: int = 0


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

    def groups(self) -> list[Group]:
        """Return every group that may hold a legal plan, with a proved bound each."""
        ...

    def refined_bound_ps(self, group: Group) -> int | None:
        """Return a better, costlier bound on all cells of a group; None if nothing fits."""
        ...

    def cells(self, group: Group) -> Sequence[Cell]:
        """Return the cells of a group, in the order of ties."""
        ...

    def cell_count(self, group: Group) -> int:
        """Return the number of cells of a group."""
        ...

    def weights(self, cell: Cell) -> ObjectiveWeights:
        """Return the objective of a cell."""
        ...

    def bound_ps(self, cell: Cell) -> int | None:
        """Return a lower bound on a cell from its own levels; None if nothing fits."""
        ...

    def chain(self, cell: Cell) -> Chain:
        """Return a cell's matrices."""
        ...

    def mode(self, cell: Cell, stage: int, low: int, high: int) -> Recompute:
        """Return the mode that the matrices assume for a stage."""
        ...

    def memory_cases(self) -> Iterator[MemoryCase]:
        """Yield the cases that differ in memory, whether or not anything fits."""
        ...

    def allows(self, case: MemoryCase, stages: int) -> bool:
        """Whether some legal device map with S stages exists, memory aside."""
        ...

    def memory_floor(self, case: MemoryCase) -> tuple[int, int]:
        """Return (bytes that the largest layer needs alone, bytes of all states)."""
        ...

    def memory(self, case: MemoryCase, place: int) -> Array:
        """Return the least bytes of every interval as the last stage but place - 1, pins aside."""
        ...

    def held(self, stages: int) -> list[Held] | None:
        """Return the layers that each of S stages must hold; None if pins want more stages."""
        ...

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return a matrix that is `INFINITE` for stages without the layers to be held."""
        ...

    def memory_of(self, case: MemoryCase, stages: int) -> list[Array]:
        """Return the least bytes of every interval of S stages, last stage first."""
        ...
