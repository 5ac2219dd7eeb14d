"""The numbers of a group for `dual_rows`, from what the certificate checker rebuilds by itself.

Like the checker it takes them from problem and cost table alone, and imports the standard library.
Stages of one configuration, as the checker knows no others.
"""

from itertools import chain

from nest_opt.certify import dual_rows
from nest_opt.certify.checker import Costs, Group, Proofs, added, in_flight


def numbers(proofs: Proofs, group: Group) -> dual_rows.Group | None:
    """Return the numbers of a group; None if it has fewer failure domains than replicas need."""
    space, table, (costs, weigh) = proofs.space, proofs.table, proofs.of(group)
    devices, d, s = space.devices, group.replicas, group.stages
    block, (_, _, runs) = _block(costs), space.zeros[group.zero]
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
        in_flight=tuple(
            in_flight(space.schedules[group.schedule], i, s, costs.rounds) for i in range(s)
        ),
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


def _block(costs: Costs) -> int:
    tp, cp, ep, _ = costs.k
    return int(tp * cp * ep)


def _exchange(costs: Costs) -> int:
    """Return E of (66) on level 0."""
    return costs.exchange_ps(2, 0)


def _choice(proofs: Proofs, group: Group, top: int) -> dual_rows.Choice:
    """Return what a stage takes, at levels 0 to `top`."""
    (costs, _), (inside, copies, _) = proofs.of(group), proofs.space.least(group)
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
    proofs: Proofs, group: Group, place: int, own: list[int], top: int
) -> dual_rows.ClassCosts:
    """Return what a class takes over its copies in a run; between runs, at the least level."""
    (costs, _), rows, sync = proofs.of(group), proofs.table.rows, proofs.table.sync
    name, zero, inside, each, batch = costs.classes[place]
    between = proofs.space.least(group)[1][2 * place + 1]
    held = costs.costs["parameters"][name]
    nothing = [0] * (1 + len(held))
    fixed, syncs, rounds = [], [], []
    for level in range(top + 1):
        keys = [(name, inside, what, 1, level) for what in batch]
        if zero and costs.runs > 1:
            keys.append((name, costs.runs, "all-reduce", inside, between))
        first, *row = added([nothing, *(sync[*costs.k, *key] for key in keys)])
        fixed.append(first)
        syncs.append(tuple(row[r] for r in own))
        calls = [sync[*costs.k, name, inside, what, 1, level] for what in each]
        rounds.append(
            tuple(sum(call[0] + call[1 + r] for call in calls) if held[r] else 0 for r in rows)
        )
    return dual_rows.ClassCosts(
        tuple(fixed), tuple(syncs), tuple(rounds), tuple(held[r] > 0 for r in own)
    )
