"""Whether the checker of certificates says what search and brute force say.

It shares no code with them: spaces, levels, costs of intervals and values of cells are
rebuilt by each from the same problem, and have to be the same numbers. A claim has to be
provable exactly if it is true.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from certificate_mutations import best_value, largest, provable
from free_instances import free_data

from nest_opt import InstanceError, Problem
from nest_opt.certify.brute_force import enumerate_cells
from nest_opt.certify.checker import (
    ENDLESS,
    Coverage,
    Group,
    Proofs,
    RefusedError,
    Space,
    Steps,
    Table,
    check,
)
from nest_opt.certify.maker import slabs
from nest_opt.cost.table_file import table_to_json
from nest_opt.dp.chain import INFINITE
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.rules import Restriction, restriction
from nest_opt.dp.search import NO_LIMIT
from nest_opt.dp.thresholds import least_value
from nest_opt.milp.exact import exact
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell
from nest_opt.problem.files import to_json_data
from nest_opt.problem.validation import build

OBJECTIVES = ("fill-drain", "nest", "bottleneck")
Key = tuple[object, ...]


@dataclass
class Compared:
    """What comparisons found: differences, and how many of each sort were made."""

    differences: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def expect(self, what: str, fact: bool, told: object = "") -> None:
        """Count a comparison, and note it if it does not hold."""
        self.counts[what] += 1
        if not fact:
            self.differences.append(f"{what}: {told}")


@dataclass(frozen=True)
class Both:
    """A problem as checker and search see it."""

    costs: Costs
    space: Space
    table: Table

    def proofs(self, least_ps: int | None) -> Proofs:
        """Return the proofs of a claim."""
        return Proofs(self.space, self.table, ENDLESS if least_ps is None else least_ps)


def both(data: Any, family: str = "aligned") -> Both:
    """Build a problem twice.

    Raises
    ------
    InstanceError
        If there are no legal degrees.
    RefusedError
        If the checker knows no such problems.
    """
    costs = Costs(build(Problem, data, "problem"))
    table = table_to_json(costs.search_table)
    space = Space(to_json_data(costs.problem), table, family)
    return Both(costs, space, Table(table, space))


def with_objective(data: Any, objective: str) -> Any:
    """Return a problem under another objective."""
    return {**data, "job": {**data["job"], "objective": objective}}


# Claims


def compare_claims(data: Any, compared: Compared) -> None:
    """See that the optimum is provable, and that nothing above it is, honestly or by forgery."""
    costs = Costs(build(Problem, data, "problem"))
    best = best_value(costs)
    made = provable(costs, "aligned", best)
    compared.expect("the optimum is provable", made is not None, best)
    if made is None:
        return
    verdict = _accepted(made.data)
    compared.expect("it is accepted", verdict is not None and verdict[0] == best, best)
    compared.counts.update({f"groups by {name}": number for name, number in made.proofs.items()})
    if best is None:
        compared.counts["problems without a plan"] += 1
        lower = _claiming(made.data, "1")
        compared.expect("where no plan is, any value is proved", _accepted(lower) is not None)
        return
    compared.expect("one more is not provable", provable(costs, "aligned", best + 1) is None, best)
    compared.expect("that there is no plan is not", provable(costs, "aligned", None) is None, best)
    # The free family has all plans of the aligned one.
    compared.expect("nor of the free family", provable(costs, "free", best + 1) is None, best)
    for name, evidence in _forged(made.data):
        for claim in (str(best + 1), None) if name == "the same evidence" else (str(best + 1),):
            forged = {**_claiming(made.data, claim), "evidence": evidence}
            compared.expect(f"refused: {name}", _accepted(forged) is None, (best, claim))


def _accepted(data: Any) -> tuple[int | None] | None:
    try:
        return (check(data).least_ps,)
    except RefusedError:
        return None


def _claiming(data: Any, least_ps: str | None) -> Any:
    return {**data, "claim": {**data["claim"], "least_ps": least_ps}}


def _forged(data: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield evidence that cannot do for more than the certificate's claim."""
    evidence = data["evidence"]
    yield "the same evidence", evidence
    yield "none", []
    pairs, schedules = (
        len(data["table"]["pairs"]),
        1 + max((entry["box"]["schedule"] for entry in evidence), default=0),
    )
    zeros = len(data["table"].get("zero", [0]))
    whole = [
        {
            "pair": pair,
            "schedule": schedule,
            "zero": [0, zeros - 1],
            "replicas": [1, 2**20],
            "stages": [1, 2000],
        }
        for pair in range(pairs)
        for schedule in range(schedules)
    ]
    # What entries say beside their boxes, each for everything; none says more than this.
    rest = [{k: v for k, v in entry.items() if k != "box"} for entry in evidence]
    rest += [{"proof": "sum"}, {"proof": "room"}, {"proof": "chunks"}]
    rest += [
        {"proof": "thresholds", "sync_ps": []},
        {"proof": "thresholds", "sync_ps": [], "maps": []},
    ]
    distinct: list[Any] = []
    for item in rest:
        if item not in distinct:
            distinct.append(item)
            yield f"{item['proof']} for all", [{**item, "box": box} for box in whole]


def uniform_free_data(seed: int) -> dict[str, Any]:
    """Return a problem of the free family without stages that differ, which are not certified."""
    data = free_data(seed)
    search = {key: value for key, value in data["search"].items() if key != "per_stage"}
    return {**data, "search": search}


def compare_free(data: Any, compared: Compared) -> None:
    """See that what is proved of the free family is at most the integer program's optimum."""
    costs = Costs(build(Problem, data, "problem"))
    made = largest(costs, "free", best_value(costs))
    proved = None if made is None else _accepted(made.data)
    compared.expect("some value of the free family is proved", proved is not None)
    found = exact(costs.problem, family="free")
    best = None if found.evaluation is None else found.evaluation.value_ps
    if proved is None or best is None:
        return
    (least,) = proved
    compared.expect("it is at most the optimum", least is not None and least <= best, (least, best))
    above = provable(costs, "free", best + 1)
    compared.expect("one more than the optimum is not provable", above is None, best)
    compared.counts["free optima that are proved"] += least == best


# Spaces


def compare_spaces(pair: Both, compared: Compared) -> None:
    """See that both have the same cells: groups, device maps and rounds."""
    problem, space = pair.costs.problem, pair.space
    theirs = {
        _key(cell.pair, cell.zero, cell.schedule, cell.rounds, _starts(cell))
        for cell in enumerate_cells(problem)
        if _keeps(restriction(problem), cell) and not _is_dominated(space, cell)
    }
    ours = set()
    for group in Coverage(space).groups:
        b, k = space.pairs[group.pair]
        for hop, step, _ in space.maps(group).values():
            starts = tuple(
                i * hop + r * step for i in range(group.stages) for r in range(group.replicas)
            )
            zero, schedule = space.zeros[group.zero], space.schedules[group.schedule]
            rounds = space.rounds(group.pair, group.replicas)
            ours.add(_key((b, k), zero, schedule, rounds, (group.replicas, *starts)))
    compared.expect("the same cells", ours == theirs, sorted(map(str, ours ^ theirs))[:2])
    compared.counts["cells"] += len(ours)


def _key(pair: Any, zero: Any, schedule: Any, rounds: int, starts: tuple[int, ...]) -> Key:
    (b, k), (name, chunks) = pair, tuple(schedule)
    return b, tuple(k), tuple(zero), name, chunks, rounds, starts


def _starts(cell: Cell) -> tuple[int, ...]:
    of = cell.device_map
    starts = [of.block_start(r, i) for i in range(of.stages) for r in range(of.replicas)]
    return (of.replicas, *starts)


def _keeps(rules: Restriction, cell: Cell) -> bool:
    stages = cell.device_map.stages
    return (
        rules.allows_pair(*cell.pair)
        and rules.allows_replicas(cell.device_map.replicas)
        and rules.allows_stages(stages)
        and all(pin.least_stages <= stages for pin in rules.pins)
        and rules.allows_map(cell.device_map)
    )


def _is_dominated(space: Space, cell: Cell) -> bool:
    """Whether 1F1B is allowed beside a schedule that has the same values and no less memory."""
    fills = cell.device_map.stages > 1 and space.objective != "bottleneck"
    beside = ("1f1b", 1) in space.schedules
    name = cell.schedule.name
    return beside and (name == "gpipe" or (name == "zb-h1" and not fills))


# Numbers


def cells_of(pair: Both) -> Iterator[tuple[Group, Steps, Cell]]:
    """Yield the checker's groups and maps, with the cell that each is to the search."""
    rules = restriction(pair.costs.problem)
    cells: dict[Key, Cell] = {}
    for cell in enumerate_cells(pair.costs.problem):
        if _keeps(rules, cell):
            cells[_key(cell.pair, cell.zero, cell.schedule, cell.rounds, _starts(cell))] = cell
    for group in Coverage(pair.space).groups:
        zero, schedule = pair.space.zeros[group.zero], pair.space.schedules[group.schedule]
        rounds, seen = pair.space.rounds(group.pair, group.replicas), set()
        for steps in pair.space.maps(group).values():
            hop, step, _ = steps
            starts = [
                i * hop + r * step for i in range(group.stages) for r in range(group.replicas)
            ]
            key = _key(
                pair.space.pairs[group.pair], zero, schedule, rounds, (group.replicas, *starts)
            )
            if key not in seen:
                seen.add(key)
                yield group, steps, cells[key]


def compare_intervals(
    pair: Both, source: DefaultSource, group: Group, steps: Steps, cell: Cell, compared: Compared
) -> None:
    """See that every interval costs both the same as every stage of a cell: load, fill, Z."""
    proofs = pair.proofs(None)
    _, weigh = proofs.of(group)
    stages, chain = proofs.stages(group, steps), source.chain(cell)
    if stages is None:
        none = any(int(time.min()) >= INFINITE for time in chain.time)
        compared.expect("a level is forbidden to both", none, (group, steps))
        return
    n, lows, rows = pair.table.last, {0}, proofs.chain(group, stages, ENDLESS)
    for i in range(group.stages):
        left = group.stages - 1 - i
        load, fill = chain.time[left], (chain.fill or chain.time)[left]
        # Where loads are no matrix of their own, they are so many times F.
        times = 1 if chain.fill is not None else weigh.of_time
        theirs = {
            (low, high): (
                times * int(load[low, high]),
                weigh.total * int(fill[low, high]),
                0 if chain.sync is None else int(chain.sync[left][low, high]),
            )
            for low in lows
            for high in range(low + 1, n - left + 1)
            if load[low, high] < INFINITE and (left or high == n)
        }
        ours = {(low, high): tuple(costs) for low, row in rows[i].items() for high, *costs in row}
        compared.counts["intervals"] += len(ours)
        differ = [at for at in {**ours, **theirs} if ours.get(at) != theirs.get(at)]
        compared.expect(
            "intervals cost the same",
            not differ,
            [(group, steps, i, at, ours.get(at), theirs.get(at)) for at in differ[:1]],
        )
        lows = {high for _, high in theirs}


def value_of(source: DefaultSource, cell: Cell) -> int | None:
    """Return the search's optimum of one cell, None if it has no plan."""
    if source.bound_ps(cell) is None:
        return None
    if cell.schedule.is_interleaved:
        plan = source.chunk_plan(cell)
        return None if plan is None else plan.value_ps
    return least_value(source.chain(cell), source.weights(cell), NO_LIMIT).value


def compare_cells(pair: Both, rng: random.Random, most: int, compared: Compared) -> None:
    """See that each cell's optimum is exactly what its own proof proves, and no group's more.

    Of cells and groups `most` at the most are looked at.
    """
    source = DefaultSource(pair.costs)
    every = list(cells_of(pair))
    for group, steps, cell in rng.sample(every, min(most, len(every))):
        if not cell.schedule.is_interleaved:
            compare_intervals(pair, source, group, steps, cell, compared)
        best = value_of(source, cell)
        compared.expect(
            "a map's optimum is provable", _proves(pair, best, group, steps), (best, cell)
        )
        if best is not None:
            more = _proves(pair, best + 1, group, steps)
            compared.expect("a map's optimum and one is not", not more, (best, cell))
    groups = sorted({group for group, _, _ in every})
    for group in rng.sample(groups, min(most, len(groups))):
        values = [value_of(source, cell) for own, _, cell in every if own == group]
        legal = [value for value in values if value is not None]
        if legal:
            proofs = pair.proofs(min(legal) + 1)
            compared.expect("sum proves no group too much", not proofs.sum(group), group)
            compared.expect("room proves no group too much", not proofs.room(group), group)
            at_once = _proves(pair, min(legal) + 1, group, None)
            compared.expect("least levels prove no group too much", not at_once, group)


def _proves(pair: Both, least_ps: int | None, group: Group, steps: Steps | None) -> bool:
    """Whether the dynamic program, or all chunks, prove a value of a group or map."""
    proofs = pair.proofs(least_ps)
    if pair.space.schedules[group.schedule][1] > 1:
        return proofs.chunks(group, steps)
    sync_ps = slabs(proofs, group, steps)
    if sync_ps is None:
        # Nor do any others: of each, and of none.
        return proofs.thresholds(group, steps, []) or proofs.thresholds(group, steps, [0])
    return proofs.thresholds(group, steps, sync_ps)


def compare_all(
    data: Any, seed: int, objectives: Sequence[str] = OBJECTIVES, most: int = 2
) -> Compared:
    """Compare claims, spaces and numbers of a problem under each of some objectives."""
    compared = Compared()
    for objective in objectives:
        asked = with_objective(deepcopy(data), objective)
        try:
            pair = both(asked)
        except RefusedError as error:
            compared.counts[f"skipped: {str(error)[:40]}"] += 1
            return compared
        except InstanceError:
            compared.counts["skipped: no legal degrees"] += 1
            return compared
        compare_claims(asked, compared)
        compare_spaces(pair, compared)
        compare_cells(pair, random.Random(f"{seed} {objective}"), most, compared)
        compared.counts[f"objective {objective}"] += 1
    compared.counts["problems"] += 1
    return compared
