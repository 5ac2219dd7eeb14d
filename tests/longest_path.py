"""Longest paths of a pipeline's dependency graph, found the slow way, for the tests of schedules.

Written apart from `nest_opt.simulate`: it reads the orders of the devices
alone, lists every dependency as an edge and relaxes all edges until nothing
changes (Bellman and Ford), so that it needs no order to visit them in.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

# (kind, microbatch, stage)
Node = tuple[str, int, int]


def data_edges(rounds: int, stages: int, split: bool) -> list[tuple[Node, Node]]:
    """Return (maker, user) for everything that a microbatch's operations pass on."""
    back = "B" if split else "BW"
    edges: list[tuple[Node, Node]] = []
    for j in range(rounds):
        path = [("F", j, s) for s in range(stages)] + [(back, j, s) for s in range(stages)[::-1]]
        edges += pairwise(path)
        if split:
            edges += [(("B", j, s), ("W", j, s)) for s in range(stages)]
    return edges


def finish_times(
    orders: Sequence[Sequence[tuple[str, int, int]]],
    chunks: int,
    work: Callable[[Node], int],
    hop: Callable[[Node, Node], int],
    *,
    blocking: bool,
    dropped: Callable[[Node, Node], bool] = lambda maker, user: False,
) -> dict[Node, int]:
    """Return when each operation ends.

    `hop` is the transfer from a stage to its neighbour; edges for which
    `dropped` holds are left out.
    """
    devices = len(orders)
    nodes = [[(kind, j, c * devices + i) for kind, j, c in orders[i]] for i in range(devices)]
    rounds = 1 + max(j for _, j, _ in nodes[0])
    split = any(kind == "W" for kind, _, _ in nodes[0])
    weight = {node: work(node) for order in nodes for node in order}
    edges = [(a, b, 0) for order in nodes for a, b in pairwise(order)]
    for maker, user in data_edges(rounds, devices * chunks, split):
        if dropped(maker, user):
            continue
        transfer = 0 if (maker[2] - user[2]) % devices == 0 else hop(maker, user)
        if blocking:
            weight[user] += transfer
            transfer = 0
        edges.append((maker, user, transfer))
    end = dict(weight)
    for _ in range(len(end) + 1):
        changed = False
        for maker, user, transfer in edges:
            found = end[maker] + transfer + weight[user]
            if found > end[user]:
                end[user], changed = found, True
        if not changed:
            return end
    raise AssertionError("the operations wait for each other in a circle")
