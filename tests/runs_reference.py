"""The proof by runs of stages, done again in Python's integers: what a checker has to do.

It takes from the certificate's checker what an interval of layers costs as a stage,
and nothing from the dynamic program. How a stage may lie is a triple: blocks that it takes of a
group (0 if its own is in several), levels of its tp, cp and ep groups, levels of copies.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeAlias

from nest_opt.certify.checker import ENDLESS, Group, Levels, Proofs, Row, in_flight

Lie: TypeAlias = tuple[int, Levels, Levels]
# Blocks that a stage takes, whether hops in and out are far, and intervals by first layer.
Choice: TypeAlias = tuple[int, bool, bool, list[Row]]
# Of the hop into a suffix: far, near from a torn block, or near from a group with room for so
# many blocks more.
FAR, TORN = -1, 0


def runs(proofs: Proofs, group: Group, level: int, sync_ps: Sequence[int]) -> bool:
    """Whether no plan of a group of the free family is below L, by counting at a level."""
    space, s, (costs, _) = proofs.space, group.stages, proofs.of(group)
    k, d, h = space.pairs[group.pair][1], group.replicas, space.zeros[group.zero][2]
    room = space.sizes[level - 1] // space.block(group.pair)
    together = d if h == 1 else min(h, d // h)
    (*inside, hop), near, ends, _ = space.least(group)
    far = tuple(max(level, own) for own in near)
    lies: list[Lie] = [(1, tuple(inside), far)] * (together > 1) + [(together, tuple(inside), near)]
    lies = [lie for lie in lies if lie[0] <= room]
    lies += [
        (0, (*inside[:kind], max(level, inside[kind]), *inside[kind + 1 :]), near)
        for kind in range(3)
        if k[kind] > 1
    ]
    low, high = (costs.exchange_ps(s, at) for at in (ends, max(level, ends)))
    closings = [([FAR], FAR, low)]
    if high > low and s > room:
        closings = [([FAR], FAR, high), ([TORN], TORN, low)]
        closings += [([*range(r, room + 1)], r, low) for r in range(1, room + 1)]
    fills = proofs.fills(group)
    for after, whole, exchange in closings:
        chain = _chain(proofs, group, lies, (hop, max(level, hop)), exchange)
        for most, below in zip([ENDLESS, *sync_ps], [*sync_ps, -1], strict=True):
            aim = proofs.least - 1 - below
            load = aim - 1 - fills
            while load >= 0:
                least = _least_sum(chain, room, after, whole, load, most)
                if aim - 1 - least >= load:
                    return False
                load = aim - 1 - least
    return True


def _chain(
    proofs: Proofs, group: Group, lies: Sequence[Lie], hops: tuple[int, int], exchange: int
) -> list[list[Choice]]:
    """Return what each stage may be; hops that the ends do not have are neither near nor far."""
    (_, weigh), s, rules = proofs.of(group), group.stages, proofs.space.rules
    room = proofs.least - 1 - proofs.fills(group)
    most = room // weigh.of_time if weigh.of_time else ENDLESS
    of = (group.pair, group.zero, group.replicas)
    held: list[set[int]] = [set() for _ in range(s)]
    for places, stage in rules.pins:
        held[stage % s].update(places)
    found: list[list[Choice]] = []
    for i in range(s):
        found.append([])
        flight = in_flight(proofs.space.schedules[group.schedule], i, s, proofs.of(group)[0].rounds)
        extra = exchange if i in (0, s - 1) else 0
        for (taken, inside, copies), far_in, far_out in product(lies, (False, True), (False, True)):
            at = (hops[far_in] if i else -1, hops[far_out] if i < s - 1 else -1)
            if inside[0] <= rules.tp_level and max(at) <= rules.hop_level:
                levels = frozenset({(*inside, *at)})
                own = (levels, flight, tuple(sorted(held[i])), frozenset({copies}), extra)
                rows = [proofs.row(of, weigh, own, most, x) for x in range(proofs.table.layers)]
                found[-1].append((taken, far_in, far_out, rows))
    return found


def _steps(taken: int, room: int, far_in: bool, far_out: bool) -> Iterator[tuple[int, int]]:
    """Yield the states that such a stage makes of which states."""
    for before in [FAR] if far_in else range(room + 1):
        if far_in or (before == TORN) == (taken == 0):
            left = (room if far_in else before) - taken
            if taken == 0:
                yield before, FAR if far_out else TORN
            elif left >= (not far_out):
                yield before, FAR if far_out else left


def _least_sum(
    chain: Sequence[Sequence[Choice]],
    room: int,
    ends: Sequence[int],
    whole: int,
    most_load: int,
    most_sync: int,
) -> int:
    """Return the least sum of fills with loads and Z up to these."""
    n = max((len(rows) for choices in chain for *_, rows in choices), default=0)
    after = {state: [ENDLESS] * n + [0] for state in ends}
    for choices in reversed(chain):
        before: dict[int, list[int]] = {}
        for taken, far_in, far_out, rows in choices:
            fit = [
                [
                    (high, fill)
                    for high, load, fill, z in row
                    if load <= most_load and z <= most_sync
                ]
                for row in rows
            ]
            for state, to in _steps(taken, room, far_in, far_out):
                if to in after:
                    old, rest = before.get(state, [ENDLESS] * (n + 1)), after[to]
                    before[state] = [
                        min([old[low], *(fill + rest[high] for high, fill in row)])
                        for low, row in enumerate(fit)
                    ] + [ENDLESS]
        after = before
    return min(after[whole][0], ENDLESS) if whole in after else ENDLESS
