"""What the search asks of a cost model: cells in groups, their bounds and matrices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import Array, Chain
from nest_opt.dp.chunks import ChunkPlan
from nest_opt.dp.matrices import Held
from nest_opt.plan.placement import Cell
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule


@dataclass(frozen=True)
class Group:
    """Cells that share everything but rank order and pitch.

    `bound_ps` is a lower bound on all its cells; `place` orders equals: fewer
    devices, fewer stages, smaller d, b, tp, cp, ep, then sp, smaller z, and the
    schedule. Of a `dominated` group each cell has one elsewhere that costs no more
    and wins the tie.
    """

    bound_ps: int
    devices: int
    stages: int
    replicas: int
    microbatch: int
    configuration: Configuration
    rounds: int
    zero: int = 0
    schedule: Schedule = ONE_F_ONE_B
    dominated: bool = False

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

    def allows(self, case: MemoryCase, stages: int) -> bool:
        """Whether some legal device map with S stages exists, memory aside."""
        ...

    def memory_floor(self, case: MemoryCase) -> tuple[int, int]:
        """Return (bytes that the largest layer needs alone, bytes of all states)."""
        ...

    def memory(self, case: MemoryCase, place: int) -> Array:
        """Return the least bytes of every interval as a stage of such a place, pins aside."""
        ...

    def places(self, case: MemoryCase, stages: int) -> list[int]:
        """Return what the memory of each of S stages depends on, first stage first."""
        ...

    def held(self, stages: int) -> list[Held] | None:
        """Return the layers that each of S stages must hold; None if pins want more stages."""
        ...
