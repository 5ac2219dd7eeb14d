"""A first incumbent: the best cuts of many topological orders. No Pyomo here.

The parts in a topological order, cut into intervals: a dynamic program finds
the cuts and the place of every kind that make the largest load least, since
the load of an interval does not depend on the other cuts. An order is then
changed ...
"""
import random
import numpy as np
from nest_opt.milp.graph.parts import Parts


def interval_loads(parts, order):
    """per kind array (n+1,n+1) of load of [i,j); inf where not allowed."""
    n = parts.count
    place = np.empty(n, dtype=np.int64); place[np.array(order)] = np.arange(n)
    moved = np.zeros((n + 2, n + 2), dtype=np.int64)
    def add(i0, i1, j0, j1, c):  # i in [i0,i1), j in [j0,j1)
        moved[i0, j0] += c; moved[i1, j0] -= c; moved[i0, j1] -= c; moved[i1, j1] += c
    for t in parts.tensors:
        p = int(place[t.source]); cs = sorted(int(place[w]) for w in t.targets); c = t.transfer_ps
        lo, hi = min(p, cs[0]), max(p, cs[-1])
        # sent: holds p, not all
        add(0, p + 1, p + 1, n + 1, c)
        add(0, lo + 1, hi + 1, n + 1, -c)
        # received from before: i > p
        prev = p
        for q in cs:
            if q > p:
                add(prev + 1, q + 1, q + 1, n + 1, c); prev = q
        # source after the interval: j <= p, some consumer before p
        prev = p
        for q in reversed(cs):
            if q < p:
                add(0, q + 1, q + 1, prev + 1, c); prev = q
    moved = moved.cumsum(0).cumsum(1)[: n + 1, : n + 1]
    out = []
    for k in parts.kinds:
        t = np.array([x if x is not None else 0 for x in k.time_ps], dtype=np.int64)[order]
        bad = np.array([x is None for x in k.time_ps], dtype=np.int64)[order]
        z = lambda a: np.concatenate(([0], np.cumsum(a)))
        T, B, M = z(t), z(bad), z(np.array(k.size_bytes, dtype=np.int64)[order])
        load = T[None, :] - T[:, None]
        if k.pays_transfers: load = load + moved
        load = np.where((B[None, :] > B[:, None]) | (M[None, :] - M[:, None] > k.usable_bytes), INF, load)
        i, j = np.tril_indices(n + 1, -1)
        load[i, j] = INF
        load[np.arange(n + 1), np.arange(n + 1)] = 0
        out.append(load)
    return out
INF = 2**62

def best_cuts(loads, counts):
    """DP over used counts per kind. returns (value, [(kind, i, j)])."""
    import itertools
    n = loads[0].shape[0] - 1
    best = {}; how = {}
    for used in itertools.product(*[range(c + 1) for c in counts]):
        if not any(used):
            v = np.full(n + 1, INF); v[0] = 0; best[used] = v; continue
        val = np.full(n + 1, INF); arg = np.zeros(n + 1, dtype=int); kk = np.zeros(n + 1, dtype=int)
        for q, c in enumerate(used):
            if not c: continue
            prev = best[used[:q] + (c - 1,) + used[q + 1:]]
            m = np.maximum(prev[:, None], loads[q])
            a = m.argmin(0); v = m[a, np.arange(n + 1)]
            better = v < val
            val[better] = v[better]; arg[better] = a[better]; kk[better] = q
        best[used] = val; how[used] = (arg, kk)
    used = tuple(counts); j = n; cuts = []
    value = int(best[used][n])
    if value >= INF: return None
    while any(used):
        arg, kk = how[used]; q = int(kk[j]); i = int(arg[j])
        cuts.append((q, i, j)); j = i
        used = used[:q] + (used[q] - 1,) + used[q + 1:]
    return value, cuts[::-1]


def random_order(parts, rng, after, indeg, priority, depth):
    deg = list(indeg); ready = [u for u in range(parts.count) if not deg[u]]; order = []
    import heapq
    heap = [(priority[u], u) for u in ready]; heapq.heapify(heap); t = 0
    while heap:
        _, u = heapq.heappop(heap); order.append(u)
        for v in after[u]:
            deg[v] -= 1
            if not deg[v]:
                heapq.heappush(heap, (priority[v] - (len(order) * depth), v))
    return order
