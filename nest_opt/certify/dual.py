"""LP-dual certificates of the free family: multipliers and splits for `dual_rows`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from nest_opt.certify import dual_rows as rows
from nest_opt.cost.objective import objective_weights
from nest_opt.cost.schedule import drains, in_flight, rounds_per_batch, runs
from nest_opt.cost.sharding import (
    CopyLevels, Sharding, between_sync, exchange_time, fits_replicas, round_times, run_sync,
    sharded_pair,
)
from nest_opt.cost.table import CLASSES, copies, row_times
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Configuration, Zero
from nest_opt.problem.profile import GROUPS, RECOMPUTE_MODES
from nest_opt.problem.schedule import Schedule
from nest_opt.solver.linear import LinearProgram, LinearSolution, solve_linear


@dataclass(frozen=True)
class Degrees:
    """What a group fixes."""

    microbatch: int
    choices: tuple[Configuration, ...]
    rounds: int
    replicas: int
    stages: int
    schedule: Schedule
    zero: Zero


def groups(costs: Costs) -> Iterator[Degrees]:
    problem, table = costs.problem, costs.table
    devices = problem.cluster.device_count
    shared: dict[Any, list[Any]] = {}
    for b, k in table.replicas:
        shared.setdefault((b, problem.search.shared(k)), []).append((b, k))
    for (b, _), members in shared.items():
        for d in sorted({d for pair in members for d in table.replicas[pair]}):
            choices = tuple(k for _, k in members if d in table.replicas[b, k])
            m = rounds_per_batch(problem.job, b, choices[0].ep, d)
            a = min(k.block_size for k in choices)
            for S in range(1, min(table.layer_count, devices // (a * d)) + 1):
                if problem.search.pp and S not in problem.search.pp:
                    continue
                for sch in problem.search.schedules:
                    if not runs(sch, S, m) or sch.is_interleaved: continue
                    for z in problem.zeros:
                        if fits_replicas(z, d):
                            yield Degrees(b, choices, m, d, S, sch, z)


def numbers(costs: Costs, at: Degrees) -> rows.Group:
    problem, table = costs.problem, costs.table
    K = problem.cluster.device_count
    sizes = costs.network.group_sizes
    top = sum(s < K for s in sizes)
    rooms = tuple(tuple(min(s, K - f) for f in range(0, K, s)) for s in sizes[:top])
    w = objective_weights(problem.job.objective, at.stages, at.rounds, at.schedule)
    index = {name: i for i, name in enumerate(problem.model.ids)}
    fixed = set(); floor = 0; possible = True
    names = [l.name for l in problem.cluster.network.levels]
    for c in problem.constraints:
        if c.type == "colocation":
            p = sorted(index[i] for i in c.layers)
            fixed |= set(range(p[0] + 1, p[-1] + 1))
        elif c.type == "forbidden-boundary":
            fixed |= {index[c.after] + 1} - {len(index)}
        elif c.type == "failure-domains":
            l = names.index(c.level)
            g = sizes[l]; n = -(-K // g)
            if c.at_most < at.replicas: floor = max(floor, l + 1)
            need = -(-at.stages * min(k.block_size for k in at.choices) // min(g, K))
            if at.replicas * need > n * c.at_most: possible = False
    own = tuple(choice(costs, at, k, sizes, top) for k in at.choices)
    least_ex = min(exchange_time(table, k, Sharding(at.zero, at.replicas, at.rounds), 0) for k in at.choices)
    return rows.Group(
        at.stages, at.replicas, table.layer_count, K if possible else 0, rooms, own,
        tuple(in_flight(at.schedule, i, at.stages, at.rounds) for i in range(at.stages)),
        table.usable_bytes - table.reserve_bytes,
        w.sum_weight, w.round_weight, w.fill_weight, w.hidden_weight, w.sync,
        problem.job.objective == "fill-drain" and drains(at.schedule), least_ex, min(floor, top), frozenset(fixed), at.zero.instances == 1)


def choice(costs, at, k, sizes, top):
    table = costs.table
    K = costs.problem.cluster.device_count
    def least(n): return next(l for l, s in enumerate(sizes) if min(s, K) >= n)
    kinds = [g for g in GROUPS if k.degree(g) > 1]
    low = {g: least(k.degree(g)) for g in GROUPS}
    torn = max(low.values())
    pair = at.microbatch, k
    sh = Sharding(at.zero, at.replicas, at.rounds)
    pc = sharded_pair(table, pair, sh)
    L = table.layer_rows
    own = table.own_rows(0, table.layer_count) if at.stages == 1 else L
    ex = lambda row: tuple(row[r] for r in L)
    exo = lambda row: tuple(row[r] for r in own)
    modes = []
    for mode in RECOMPUTE_MODES:
        if mode not in pc.stash_bytes: continue
        times = []
        for level in range(top + 1):
            cands = [row_times(pc, k, [max(low[h], level) if h == g else low[h] for h in GROUPS])[mode] for g in kinds] if level > torn else []
            cands = cands or [row_times(pc, k, [low[h] for h in GROUPS])[mode]]
            times.append(ex(tuple(map(min, zip(*cands)))))
        modes.append(rows.ModeCosts(tuple(times), ex(pc.stash_bytes[mode]), ex(pc.work_bytes[mode])))
    classes = []
    spread = []
    for ci, name in enumerate(CLASSES):
        inside = sh.inside(k, name)
        spread.append(least(inside))
        h = at.zero.runs(name)
        fixed, sync, rnd = [], [], []
        for level in range(top + 1):
            f, s = 0, [0] * len(L)
            for cost in (run_sync(table, k, name, sh, level), between_sync(table, k, name, sh, least(h))):
                if cost: f += cost.fixed_ps; s = [x + y for x, y in zip(s, exo(cost.row_ps))]
            fixed.append(f); sync.append(tuple(s))
            r = round_times(table, pair, sh, [CopyLevels(level)] * 2, None, [name]) if sh.has_rounds else None
            rnd.append(ex(r) if r else (0,) * len(L))
        holds = tuple(x > 0 for x in exo(pc.parameters[name]))
        classes.append(rows.ClassCosts(tuple(fixed), tuple(sync), tuple(rnd), holds))
    return rows.Choice(k.block_size, torn, (spread[0], spread[1]), tuple(modes), exo(pc.states_bytes),
        tuple(pc.hop_ps[:top + 1]), ex(pc.backward_ps), ex(pc.weight_gradient_ps), *classes)


def linear(program: rows.Program, limit: int, unit: float):
    cols = program.columns
    names = list(program.right)
    place = {n: i for i, n in enumerate(names)}
    node = {}
    cost, low, high, starts, idx, val = [], [], [], [0], [], []
    def add(c, l, h, entries):
        cost.append(c); low.append(l); high.append(h)
        for r, v in entries: idx.append(r); val.append(v)
        starts.append(len(idx))
    scale = {n: (unit if n in ("load", "sync") else 1.0) for n in cols}
    rscale = {n: (unit if n.startswith(("load", "sync", "work")) else 1.0) for n in names}
    nn = len(names)
    def nid(key):
        return node.setdefault(key, nn + len(node))
    arcs = []
    for stage, of in enumerate(program.arcs):
        for arc in of:
            ent = [(place[n], v / rscale[n]) for n, v in arc.entries.items()]
            ent.append((nid((stage, arc.tail)), -1.0 if stage else 1.0))
            if stage + 1 < len(program.arcs): ent.append((nid((stage + 1, arc.head)), 1.0))
            add(arc.cost_ps / unit, 0, 1, ent); arcs.append(arc)
    boxes = {n: nid(("box", n)) for n in cols}
    for n, col in cols.items():
        add(col.cost * scale[n] / unit, col.low / scale[n], np.inf, [(place[r], v * scale[n] / rscale[r]) for r, v in col.entries.items()] + [(boxes[n], 1.0)])
    base = {r: b for r, b in program.right.items()}
    for n, col in cols.items():
        for r, v in col.entries.items(): base[r] -= v * col.low
    esc = limit * (1 + 1e-5) - sum(c.cost * c.low for c in cols.values())
    add(esc / unit, 0, 1, [(place[r], b / rscale[r]) for r, b in base.items() if b] + [(boxes[n], (c.high - c.low) / scale[n]) for n, c in cols.items()] + [(nid((0, (0, 0))), 1.0)])
    nrows = nn + len(node)
    lower = np.zeros(nrows); upper = np.zeros(nrows)
    for r, b in program.right.items(): lower[place[r]] = b / rscale[r]; upper[place[r]] = np.inf
    for n, c in cols.items(): lower[boxes[n]] = -np.inf; upper[boxes[n]] = c.high / scale[n]
    s0 = node[(0, (0, 0))]; lower[s0] = upper[s0] = 1
    lp = LinearProgram(np.array(cost, float), np.array(low, float), np.array(high, float), lower, upper,
        np.array(starts, np.int32), np.array(idx, np.int32), np.array(val, float))
    sol = solve_linear(lp)
    y = {n: max(0.0, sol.multipliers[place[n]]) * unit / rscale[n] for n in names}
    return sol.value * unit, y, list(zip(arcs, sol.columns)), {n: sol.columns[len(arcs) + i] * scale[n] for i, n in enumerate(cols)}


def polished(program, y, limit):
    """Best exact value over a few roundings."""
    best = None
    for den in (1, 2, 12, 1000, 10**5):
        m = {}
        for k, u in y.items():
            f = Fraction(u).limit_denominator(max(den, 1000) if k.split()[0] in ("load", "sync", "work") else den)
            if f > 0: m[k] = f
        v = rows.dual_value(program, m)
        if best is None or v > best[0]: best = (v, m)
        if v > limit - 1: break
    return best


def choose(group, prog, x, c, bounds):
    tol = 1e-6
    sup = [(a, w) for a, w in x if w > tol]
    for name, of in (("load", lambda a: a.load_ps), ("sync", lambda a: a.sync_ps)):
        v = c[name]
        over = [of(a) for a, w in sup if of(a) > v * (1 + 1e-9) + 2]
        if over: return name, min(over) - 1
    best = None
    dist = {}
    for a, w in sup:
        for n, val in a.integers.items():
            dist.setdefault(n, {}); dist[n][val] = dist[n].get(val, 0) + w
    order = {"hop": 0, "spread": 0, "torn": 0, "size": 1, "end": 2}
    for n, ds in dist.items():
        acc = 0
        tot = sum(ds.values())
        for val in sorted(ds)[:-1]:
            acc += ds[val]
            key = (order[n.split()[0]], abs(acc / tot - .5))
            if best is None or key < best[0]: best = (key, n, val)
    if best: return best[1], best[2]
    for n, v in c.items():
        if n not in ("load", "sync") and abs(v - round(v)) > tol: return n, int(v // 1)
    for n in ("load", "sync"):
        v = round(c[n])
        if v > prog.columns[n].low + 1: return n, v - 1
    have = {}
    for of in prog.arcs:
        for a in of:
            for n, val in a.integers.items(): have.setdefault(n, set()).add(val)
    got = {n: val for a, w in sup for n, val in a.integers.items()}
    for kind in ("size", "hop", "spread", "torn", "end"):
        for n, val in got.items():
            if n.startswith(kind) and len(have[n]) > 1:
                return n, val - 1 if min(have[n]) < val else val
    return None


def prove(costs, at, limit, most=200, log=False):
    group = numbers(costs, at)
    if not group.devices: return limit, [], 0
    tie = count()
    heap = []
    leaves = []
    stuck = None
    def node(bounds, known):
        p = rows.build(group, limit, bounds)
        if not any(p.arcs): leaves.append((limit, bounds, {})); return
        v0 = rows.dual_value(p, {})
        if v0 is None or v0 > limit - 1: leaves.append((limit, bounds, {})); return
        v, y, x, c = linear(p, limit, limit / 1e5)
        got = polished(p, y, limit)
        if got[0] is None or got[0] > limit - 1:
            leaves.append((limit, bounds, got[1])); return
        heappush(heap, (max(got[0], known), next(tie), bounds, p, x, c, got))
    node({}, 0)
    splits = 0
    root = heap[0][0] if heap else limit
    while heap and splits < most:
        value, _, bounds, p, x, c, got = heappop(heap)
        s = choose(group, p, x, c, bounds)
        if log: print("   ", splits, float(value) / limit, bounds, s, len(heap), flush=True)
        if s is None:
            for a, w in x:
                if w > 1e-6: print(w, a)
            print("STUCK", float(value)/limit, float(value)-limit, at, bounds, c)
            return value, leaves, splits, root
        splits += 1
        n, val = s
        dom = bounds.get(n)
        if dom is None:
            dom = (p.columns[n].low, p.columns[n].high) if n in p.columns else (0, 10**6)
        node({**bounds, n: (dom[0], val)}, value)
        node({**bounds, n: (val + 1, dom[1])}, value)
    return (heap[0][0] if heap else limit), leaves, splits, root
