"""The proof `dual` of a certificate: the numbers of a group for `dual_rows`, and its tree.

Like the checker it takes them from problem and cost table alone, and imports the standard library
and nothing but `dual_rows`, so that the three modules can be copied out together. Stages of one
configuration, as the checker knows no others.
"""

from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nest_opt.certify.checker import Costs, Group, Proofs

if __package__:
    from nest_opt.certify import dual_rows
else:
    import dual_rows  # type: ignore[import-not-found,no-redef]

# A program has so many arcs at most.
MOST_ARCS = 10**6
# What an arc takes to make and to value, in the checker's steps.
STEPS_AN_ARC = 200


def settles(proofs: "Proofs", group: "Group", tree: Any) -> bool:
    """Whether a tree proves that no plan of a group of the free family is below L.

    Raises
    ------
    ValueError
        If the tree is malformed, or the group too large.
    """
    found = numbers(proofs, group)
    if found is None:
        return True
    arcs = dual_rows.most_arcs(found)
    if arcs > MOST_ARCS:
        raise ValueError(f"found {arcs} arcs in a linear program, at most {MOST_ARCS} are allowed")

    def spend(arcs: int) -> None:
        proofs.spend(STEPS_AN_ARC * (1 + arcs))

    return dual_rows.open_leaf(found, proofs.least, tree, spend) is None


def numbers(proofs: "Proofs", group: "Group") -> "dual_rows.Group | None":
    """Return the numbers of a group; None if constraints leave it without a plan."""
    space, table, (costs, weigh) = proofs.space, proofs.table, proofs.of(group)
    devices, d, s = space.devices, group.replicas, group.stages
    block, (_, _, runs) = _block(costs), space.zeros[group.zero]
    stages = proofs.stages(group, None)
    if stages is None:
        return None
    top = sum(size < devices for size in space.sizes)
    least_spread = 0
    for by_device, size, most in space.crowds:
        if by_device:
            continue
        if d * -(-s * block // size) > -(-devices // size) * most:
            return None
        if d > most:
            least_spread = max(least_spread, min(top, space.sizes.index(size) + 1))
    together = (range(min(layers) + 1, max(layers) + 1) for layers in space.together)
    return dual_rows.Group(
        stages=s,
        replicas=d,
        layers=table.layers,
        devices=devices,
        rooms=tuple(
            tuple(min(size, devices - first) for first in range(0, devices, size))
            for size in space.sizes[:top]
        ),
        choices=(_choice(proofs, group, top),),
        in_flight=tuple(flight for _, flight, *_ in stages),
        free_bytes=table.free,
        sum_weight=weigh.total,
        round_weight=weigh.rounds,
        fill_weight=weigh.fills,
        hidden_weight=weigh.hidden,
        syncs=weigh.sync,
        drains=space.objective == "fill-drain" and space.schedules[group.schedule][0] != "zb-h1",
        exchange_ps=_exchange(costs),
        least_spread=least_spread,
        fixed_cuts=frozenset(chain(space.cuts, *together)),
        one_run=runs == 1,
    )


def _block(costs: "Costs") -> int:
    tp, cp, ep, _ = costs.k
    return int(tp * cp * ep)


def _exchange(costs: "Costs") -> int:
    """Return E of (66) on level 0."""
    return costs.exchange_ps(2, 0)


def _choice(proofs: "Proofs", group: "Group", top: int) -> "dual_rows.Choice":
    """Return what a stage takes, at levels 0 to `top`."""
    (costs, _), (inside, *_) = proofs.of(group), proofs.space.least(group)
    copies = proofs.space.least_copies(group)
    rows, tied = proofs.table.rows, proofs.table.tied
    # A single stage holds tied parameters once: (65).
    own = rows if tied is None or group.stages > 1 else [*rows[:-1], tied]
    least, torn = inside[:3], max(inside[:3])
    kinds = [kind for kind, degree in enumerate(costs.k[:3]) if degree > 1]
    times = []
    for level in range(top + 1):
        # The worst group is of some kind: the one for which that takes least.
        raised = [tuple(max(x, level) if i == kind else x for i, x in enumerate(least))
                  for kind in kinds if level > torn]  # fmt: skip
        found = [costs.time_rows(levels) for levels in raised or [least]]
        times.append([list(map(min, zip(*by_mode, strict=True)))
                      for by_mode in zip(*found, strict=True)])  # fmt: skip
    dense, expert = (_class_costs(proofs, group, place, own, top) for place in range(2))
    return dual_rows.Choice(
        devices=_block(costs),
        torn=torn,
        spread=(copies[0], copies[2]),
        modes=tuple(
            dual_rows.ModeCosts(
                tuple(tuple(by_mode[mode][row] for row in rows) for by_mode in times),
                tuple(costs.stash_rows[mode][row] for row in rows),
                tuple(costs.work_rows[mode][row] for row in rows),
            )
            for mode in range(len(costs.modes))
        ),
        states_bytes=tuple(costs.state_row[row] for row in own),
        hop_ps=tuple(map(tuple, costs.costs["hop_ps"][: top + 1])),
        backward_ps=tuple(costs.costs["backward_ps"][row] for row in rows),
        gradient_ps=tuple(costs.costs["weight_gradient_ps"][row] for row in rows),
        dense=dense,
        expert=expert,
    )


def _class_costs(
    proofs: "Proofs", group: "Group", place: int, own: list[int], top: int
) -> "dual_rows.ClassCosts":
    """Return what a class takes over its copies in a run; between runs, at the least level."""
    (costs, _), rows, sync = proofs.of(group), proofs.table.rows, proofs.table.sync
    best = proofs.space.best
    name, zero, inside, each, batch = costs.classes[place]
    between = proofs.space.least(group)[1][2 * place + 1]
    held = costs.costs["parameters"][name]
    nothing = [0] * (1 + len(held))
    fixed, syncs, rounds = [], [], []
    for level in range(top + 1):
        # How copies spread below their level is not in the rows: as well as they can.
        spread = best(inside, level)
        keys = [(name, inside, what, 1, spread) for what in batch]
        if zero and costs.runs > 1:
            keys.append((name, costs.runs, "all-reduce", inside, between))
        every = [nothing, *(sync[*costs.k, *key] for key in keys)]
        first, *row = (sum(column) for column in zip(*every, strict=True))
        fixed.append(first)
        syncs.append(tuple(row[r] for r in own))
        calls = [sync[*costs.k, name, inside, what, 1, spread] for what in each]
        rounds.append(
            tuple(sum(call[0] + call[1 + r] for call in calls) if held[r] else 0 for r in rows)
        )
    return dual_rows.ClassCosts(
        tuple(fixed), tuple(syncs), tuple(rounds), tuple(held[r] > 0 for r in own)
    )
