"""Make certificates: find, for every group of plans, a proof that nothing in it is below a value.

The checker's own proofs are tried, cheapest first, on the groups that the
checker rebuilds, so that what is written is what it will look for. Only the
thresholds of its dynamic program are found here.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nest_opt.certify.checker import ENDLESS, Coverage, Group, Program, Proofs, Space, Steps, Table
from nest_opt.certify.dual_checked import numbers
from nest_opt.cost.table_file import table_digest, table_to_json
from nest_opt.errors import ConsistencyError
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.progress import Progress
from nest_opt.problem.files import problem_digest, to_json_data

Entry = dict[str, Any]
# How often the splits that were asked for are allowed where these are not enough for a proof.
MORE_SPLITS = (4, 16)


@dataclass(frozen=True)
class Made:
    """A certificate's data, the groups that it covers, and how many are settled by each proof."""

    data: Mapping[str, Any]
    groups: int
    proofs: Mapping[str, int]


def make_certificate(
    costs: Costs,
    family: str,
    least_ps: int | None,
    progress: Progress | None = None,
    splits: int = 0,
) -> Made:
    """Return a certificate that no plan of a family is below a value.

    Parameters
    ----------
    costs
        Of the problem, which `nest_opt.certify.scope.uncertifiable` has nothing against.
    family
        `aligned` or `free`.
    least_ps
        The value; None claims that there is no plan.
    progress
        Called with (groups settled, groups, the value).
    splits
        Of a group of the free family that nothing else settles, most splits of
        a linear program.

    Raises
    ------
    ConsistencyError
        If a group cannot be settled: the value is not a lower bound of the
        family, or of its relaxation.
    """
    data, table = to_json_data(costs.problem), table_to_json(costs.search_table)
    proofs, groups = _begin(data, table, family, ENDLESS if least_ps is None else least_ps)
    found: dict[str, list[tuple[Group, list[Entry]]]] = {}
    for number, group in enumerate(groups):
        step = _step(progress, number, len(groups), least_ps)
        step()
        entries = _settle(proofs, group) or _by_programs(proofs, group, splits, step)
        if not entries:
            raise _unsettled(proofs, group)
        found.setdefault(entries[0]["proof"], []).append((group, entries))
    evidence = [
        {**entry, "box": _box(group, group.stages)}
        for name, settled in found.items()
        if name not in ("sum", "room")
        for group, entries in settled
        for entry in entries
    ]
    evidence += [
        {"proof": "room", "box": box} for box in _ranges(g for g, _ in found.get("room", []))
    ]
    evidence += [{"proof": "sum", "box": box} for box in _whole(proofs.space, found.get("sum", []))]
    certificate = {
        "format": "nest-opt-certificate",
        "version": 1,
        "claim": {"family": family, "least_ps": None if least_ps is None else str(least_ps)},
        "problem": data,
        "problem_sha256": problem_digest(costs.problem),
        "table": table,
        "table_sha256": table_digest(costs.search_table),
        "evidence": evidence,
    }
    return Made(certificate, len(groups), Counter({name: len(of) for name, of in found.items()}))


def bound_by_programs(
    costs: Costs, enough_ps: int, splits: int, progress: Progress | None = None
) -> int:
    """Return a bound of the free family by linear programs where all other proofs fail.

    Parameters
    ----------
    costs
        Of the problem.
    enough_ps
        No more is looked for.
    splits
        Of a program, at most.
    progress
        Called with (groups looked at, groups, the bound so far).

    Raises
    ------
    SolverError
        If HiGHS fails.
    """
    # Solvers take a while to load.
    from nest_opt.certify.dual import prove

    data, table = to_json_data(costs.problem), table_to_json(costs.search_table)
    (proofs, groups), least = _begin(data, table, "free", enough_ps), enough_ps
    for number, group in enumerate(groups):
        step = _step(progress, number, len(groups), least)
        step()
        if _settle(proofs, group):
            continue
        if not _has_programs(proofs.space, group):
            return 0
        of = numbers(proofs, group)
        if of is not None:
            least = min(least, prove(of, least, splits, step).bound_ps)
    return least


def _begin(data: Any, table: Any, family: str, least: int) -> tuple[Proofs, Collection[Group]]:
    """Return the proofs that no plan of a problem is below a value, and all groups."""
    space = Space(data, table, family)
    return Proofs(space, Table(table, space), least), Coverage(space).groups.keys()


def _has_programs(space: Space, group: Group) -> bool:
    """Whether linear programs know a group: their rows are of one interval a stage, as listed."""
    return space.listed and space.schedules[group.schedule][1] == 1


def _step(
    progress: Progress | None, number: int, groups: int, best_ps: int | None
) -> Callable[[], None]:
    """Return what tells of a step, of which a group has one and one for each split."""
    return lambda: progress(number, groups, best_ps) if progress else None


def _settle(proofs: Proofs, group: Group) -> list[Entry]:
    """Return entries that settle a group, boxes aside; none if it cannot be."""
    if proofs.sum(group):
        return [{"proof": "sum"}]
    if proofs.room(group):
        return [{"proof": "room"}]
    space = proofs.space
    if space.schedules[group.schedule][1] > 1:
        if proofs.chunks(group, None):
            return [{"proof": "chunks"}]
        if space.family == "free":
            return []
        maps = _maps(space, group)
        fine = all(proofs.chunks(group, steps) for steps in maps.values())
        return [{"proof": "chunks", "maps": [list(name) for name in maps]}] if fine else []
    sync_ps = slabs(proofs, group, None)
    if sync_ps is not None:
        return [{"proof": "thresholds", "sync_ps": sync_ps}]
    return _by_map(proofs, group) if space.family == "aligned" else _by_runs(proofs, group)


def _by_runs(proofs: Proofs, group: Group) -> list[Entry]:
    """Return an entry of runs at the first level that settles a group, if one does."""
    for level in range(1, len(proofs.space.sizes)):
        sync_ps = slabs_of(proofs.least, proofs.run_programs(group, level))
        if sync_ps is not None:
            return [{"proof": "runs", "level": level, "sync_ps": sync_ps}]
    return []


def _by_programs(
    proofs: Proofs, group: Group, splits: int, step: Callable[[], None]
) -> list[Entry]:
    """Return an entry of a tree of linear programs, if there is one with so many splits."""
    if not splits or not _has_programs(proofs.space, group):
        return []
    from nest_opt.certify.dual import prove

    of = numbers(proofs, group)
    if of is None:
        return [{"proof": "dual", "tree": {"multipliers": {}}}]
    # A value that so many splits proved within a higher limit may take more of them as the limit.
    for most in (splits, *(splits * more for more in MORE_SPLITS)):
        found = prove(of, proofs.least, most, step)
        if found.bound_ps >= proofs.least:
            return [{"proof": "dual", "tree": found.tree}]
    return []


def _by_map(proofs: Proofs, group: Group) -> list[Entry]:
    """Return an entry for all device maps with the same thresholds; none if one has none."""
    by_thresholds: dict[tuple[int, ...], list[list[Any]]] = {}
    maps = _maps(proofs.space, group)
    for name, steps in maps.items():
        sync_ps = slabs(proofs, group, steps)
        if sync_ps is None:
            return []
        by_thresholds.setdefault(tuple(sync_ps), []).append(list(name))
    if not maps:
        by_thresholds[()] = []
    return [
        {"proof": "thresholds", "sync_ps": list(sync_ps), "maps": names}
        for sync_ps, names in by_thresholds.items()
    ]


def _maps(space: Space, group: Group) -> dict[tuple[str, int], Steps]:
    """Return the device maps of a group, one of those that are equal."""
    every = space.maps(group)
    kept = {space.same(group, steps): name for name, steps in every.items()}
    return {name: every[name] for name in kept.values()}


def _unsettled(proofs: Proofs, group: Group) -> ConsistencyError:
    b, k = proofs.space.pairs[group.pair]
    return ConsistencyError(
        f"certificate: found no proof that the plans of microbatch {b}, configuration {k}, "
        f"dp {group.replicas}, {group.stages} stages take at least {proofs.least} ps: "
        "the search and the checker disagree; please report the problem file"
    )


def _box(group: Group, last: int) -> Entry:
    """Return the box of a group, and of those with more stages up to a number."""
    return {
        "pair": group.pair,
        "schedule": group.schedule,
        "zero": [group.zero, group.zero],
        "replicas": [group.replicas, group.replicas],
        "stages": [group.stages, last],
    }


def _ranges(groups: Iterator[Group]) -> list[Entry]:
    """Return boxes of groups that follow each other in the number of stages."""
    boxes: list[Entry] = []
    before: Group | None = None
    for group in groups:
        if before == group._replace(stages=group.stages - 1):
            boxes[-1]["stages"][1] = group.stages
        else:
            boxes.append(_box(group, group.stages))
        before = group
    return boxes


def _whole(space: Space, settled: Sequence[tuple[Group, list[Entry]]]) -> list[Entry]:
    """Return a box of all that is left of each pair and schedule."""
    most = {"replicas": [1, space.devices], "stages": [1, space.layers]}
    pairs = dict.fromkeys((group.pair, group.schedule) for group, _ in settled)
    zeros = [0, len(space.zeros) - 1]
    return [{"pair": pair, "schedule": schedule, "zero": zeros, **most} for pair, schedule in pairs]


def slabs(proofs: Proofs, group: Group, steps: Steps | None) -> list[int] | None:
    """Return thresholds on max Z that prove a group, None if there are none."""
    stages, fills = proofs.stages(group, steps), proofs.fills(group)
    if stages is None or fills >= proofs.least:
        return []
    chain = proofs.chain(group, stages, proofs.least - 1 - fills)
    return slabs_of(proofs.least, [Program(chain, 0, proofs.table.last)])


def slabs_of(least: int, programs: Sequence[Program]) -> list[int] | None:
    """Return the same for programs, of which one has every plan.

    With Z up to a limit, what the rest of the objective is short of L has to be
    Z; so all plans with more of it are settled, and that is the next limit.
    """
    found: list[int] = []
    most = ENDLESS
    while (
        below := least - 1 - min([_least_rest(of, most) for of in programs], default=least)
    ) >= 0:
        if below >= most:
            return None
        found.append(below)
        most = below
    return found


def _least_rest(program: Program, most_sync: int) -> int:
    """Return the least sum of fills and largest load of the plans with Z up to a limit."""
    best, most_load = ENDLESS, ENDLESS
    while most_load >= 0:
        total, load = _least_sum(program, most_load, most_sync)
        if total >= ENDLESS:
            break
        best = min(best, total + load)
        # Loads from this plan's up cannot make up for sums that are no smaller.
        most_load = min(load - 1, best - 1 - total)
    return best


def _least_sum(program: Program, most_load: int, most_sync: int) -> tuple[int, int]:
    """Return the least sum of fills under thresholds, and the largest load of such a plan."""
    after: dict[Any, tuple[int, int]] = {program.end: (0, 0)}
    for rows in reversed(program.chain):
        after = {
            low: min(
                [
                    (fill + after[high][0], max(load, after[high][1]))
                    for high, load, fill, sync in row
                    if load <= most_load and sync <= most_sync
                ],
                default=(ENDLESS, 0),
            )
            for low, row in rows.items()
        }
    return after[program.start]
