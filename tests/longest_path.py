"""Longest paths of a pipeline's dependency graph, found the slow way, for the tests of schedules.

Written apart from `nest_opt.simulate`: it numbers each device's operations by
the steps of the papers, lists every dependency as an edge and relaxes all edges
until nothing changes (Bellman and Ford), so that it needs no order to visit
them in.
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


def steps(name: str, p: int, m: int, v: int = 1) -> list[list[tuple[str, int, int]]]:
    """Return the orders of 1F1B, interleaved 1F1B or ZB-H1: (kind, microbatch, chunk).

    Each is laid on a grid: step k has the k-th forward and, `ahead` steps
    later, the k-th backward of a device; under ZB-H1 device i has there also
    W of i microbatches before, and what is left of those after all.
    """
    orders = []
    for i in range(p):
        ahead = 2 * (p - 1 - i) + (v - 1) * p if name == "interleaved" else p - 1 - i
        ahead = min(ahead, m * v)
        placed: list[tuple[int, int, tuple[str, int, int]]] = []
        for k in range(m * v):
            # The k-th of p microbatches in turn on each of v chunks.
            j, c = (k // (p * v) * p + k % p, k // p % v) if name == "interleaved" else (k, 0)
            back = "B" if name == "zb-h1" else "BW"
            placed += [(k, 0, ("F", j, c)), (k + ahead, 1, (back, j, v - 1 - c))]
            if name == "zb-h1":
                placed.append((min(k + i, m - 1) + ahead, 2 + k, ("W", j, 0)))
        orders.append([operation for _, _, operation in sorted(placed)])
    return orders


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
