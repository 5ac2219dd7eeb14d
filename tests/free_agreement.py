"""Whether the program of the free family agrees with checker and evaluator, plan by plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice, product

from free_brute_force import assignments, schedules, shapes, zeros
from milp_agreement import placement_options

from nest_opt import InstanceError, Problem
from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.milp.build import Formulation, build
from nest_opt.milp.cells import FreeCell, free_cells
from nest_opt.milp.coefficients import CellCoefficients, CoefficientSource, label_of
from nest_opt.milp.near import ranks_of
from nest_opt.plan import Placement
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, block_groups, evaluate
from nest_opt.problem import Configuration, Zero
from nest_opt.problem.profile import Group
from nest_opt.problem.schedule import Schedule
from nest_opt.solver.highs import HighsSession


def placements(costs: Costs, most: int) -> Iterator[Placement]:
    """Yield placements of the free family, legal or not, of every shape of plan."""
    layers = len(costs.problem.model.ids)
    for microbatch, chain, replicas in shapes(costs):
        modes = [tuple(costs.table.pairs[microbatch, k].stash_bytes) for k in chain]
        rounds = rounds_per_batch(costs.problem.job, microbatch, chain[0].ep, replicas)
        assert rounds is not None
        for device_map in islice(assignments(costs, chain, replicas), most):
            for inner in combinations(range(1, layers), len(chain) - 1):
                for chosen in product(*modes):
                    for schedule, zero in product(
                        schedules(costs.problem, rounds, len(chain)), zeros(costs.problem, replicas)
                    ):
                        yield Placement(
                            microbatch, chain, replicas, "listed", 0, (*inner, layers), chosen,
                            device_map, zero=zero, schedule=schedule,
                        )  # fmt: skip


def is_sorted(k: Configuration, blocks: tuple[tuple[int, ...], ...], counted: Group) -> bool:
    """Whether the counted ranks of every slot of a stage are in the order of their devices."""
    return all(
        list(ranks) == sorted(ranks)
        for block in blocks
        for ranks in block_groups(block, k, counted)
    )


class Fixed:
    """The programs of a problem's cells, without what tells alike plans apart."""

    def __init__(self, costs: Costs) -> None:
        source = CoefficientSource(costs)
        self._costs = costs
        self._cells = {
            (c.microbatch, c.replicas, c.stages, k, c.zero, c.schedule): c
            for c in free_cells(costs)
            for k in c.choices
        }
        self._source = source
        self._made: dict[FreeCell, tuple[Formulation, HighsSession]] = {}

    def program(self, placement: Placement) -> tuple[Formulation, HighsSession]:
        """Return the program of a placement's cell."""
        cell = self._cells[
            placement.microbatch,
            placement.replicas,
            placement.stages,
            placement.configurations[0],
            placement.zero,
            placement.schedule,
        ]
        if cell not in self._made:
            formulation = build(self._costs, self._source.of(cell))
            for name in formulation.rows["symmetry"]:
                formulation.model.component(name).deactivate()
            self._made[cell] = formulation, HighsSession(formulation.model)
        return self._made[cell]

    def value(self, placement: Placement) -> float | None:
        """Return the program's value with stages, options and devices fixed, None if infeasible."""
        formulation, session = self.program(placement)
        k, ranks = formulation.coefficients, ranks_of(formulation.coefficients)
        for variable, value in formulation.decisions(placement.ends, placement_options(placement)):
            variable.fix(value)
        for variable in formulation.model.n.values():
            variable.fix(0)
        assert placement.devices is not None
        for stage, own in enumerate(placement.configurations):
            for replica in range(placement.replicas):
                block = placement.devices.block(replica, stage)
                for slot in ranks.slots(own):
                    for number in range(ranks.width(own)):
                        t, c, e = ranks.coordinates(slot, number)
                        group = _group(k, block[t + own.tp * (c + own.cp * e)])
                        n = formulation.model.n[replica, stage, label_of(own), *slot, group]
                        n.fix(n.value + 1)
        answer = session.solve()
        if answer.solution is None:
            return None
        return round(answer.solution.objective * formulation.units.time_ps, 4)


def _group(k: CellCoefficients, device: int) -> int:
    """Return the innermost group, or the site, that a device is in."""
    if k.pairs is None:
        return device // k.group_sizes[0]
    return next(place for place, site in enumerate(k.pairs.sites) if device in site)


@dataclass
class FreeComparison:
    """Problems and placements compared, how many illegal or unsorted, of which schedules and z."""

    problems: int = 0
    placements: int = 0
    illegal: int = 0
    unsorted: int = 0
    schedules: tuple[Schedule, ...] = ()
    zeros: tuple[Zero, ...] = ()


def compare_fixed(
    problem: Problem, name: str, told: FreeComparison, costs: Costs | None = None
) -> None:
    """Fix some placements: feasible as the checker says, valued as the evaluator.

    Where the counted ranks of a slot are not in the order of their devices,
    the program's value may be lower, never higher.
    """
    costs = costs or Costs(problem)
    try:
        some = list(islice(placements(costs, 12), 0, 4000, 37))[:15]
        fixed = Fixed(costs)
    except InstanceError:
        return
    told.problems += bool(some)
    for placement in some:
        evaluation = evaluate(costs, placement)
        violations = check(costs, placement, evaluation)
        value = fixed.value(placement)
        counted = ranks_of(fixed.program(placement)[0].coefficients).counted
        assert placement.devices is not None
        in_order = all(
            is_sorted(k, blocks, counted)
            for k, blocks in zip(placement.configurations, placement.devices.devices, strict=True)
        )
        told.placements += 1
        told.unsorted += not in_order
        told.illegal += bool(violations)
        told.schedules += (placement.schedule,)
        told.zeros += (placement.zero,)
        if in_order:
            assert value == (None if violations else evaluation.value_ps), name
        elif not violations:
            assert value is not None, name
            assert value <= evaluation.value_ps, name
