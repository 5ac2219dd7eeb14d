"""Directed graphs on 0, 1, ...: strong components, topological orders, sets as bits.

A set is an integer whose bit i says whether i is in it.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

Targets = Sequence[Sequence[int]]


def strong_components(targets: Targets) -> list[list[int]]:
    """Return the strongly connected components in a topological order (Kosaraju, Sharir 1981)."""
    sources: list[list[int]] = [[] for _ in targets]
    for node, row in enumerate(targets):
        for target in row:
            sources[target].append(node)
    seen: set[int] = set()
    finished = [node for root in range(len(targets)) for node in _postorder(targets, root, seen)]
    seen.clear()
    components = [list(_postorder(sources, root, seen)) for root in reversed(finished)]
    return [component for component in components if component]


def _postorder(targets: Targets, root: int, seen: set[int]) -> Iterator[int]:
    """Yield what is reached from a root and was not seen, each after what is reached from it."""
    if root in seen:
        return
    seen.add(root)
    walk = [(root, iter(targets[root]))]
    while walk:
        node, rest = walk[-1]
        target = next((target for target in rest if target not in seen), None)
        if target is None:
            walk.pop()
            yield node
        else:
            seen.add(target)
            walk.append((target, iter(targets[target])))


def breadth_first(targets: Targets) -> list[int]:
    """Return the topological order of an acyclic graph that takes the least ready node next."""
    sources = _source_counts(targets)
    ready = [node for node, count in enumerate(sources) if count == 0]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for target in targets[node]:
            sources[target] -= 1
            if sources[target] == 0:
                heappush(ready, target)
    return order


def depth_first(targets: Targets) -> list[int]:
    """Return the topological order of an acyclic graph that takes the last ready node next."""
    sources = _source_counts(targets)
    ready = [node for node, count in enumerate(sources) if count == 0]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for target in targets[node]:
            sources[target] -= 1
            if sources[target] == 0:
                ready.append(target)
    return order


def _source_counts(targets: Targets) -> list[int]:
    counts = [0] * len(targets)
    for row in targets:
        for target in row:
            counts[target] += 1
    return counts
