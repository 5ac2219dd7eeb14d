"""Make certificates: find, for every group of plans, a proof that nothing in it is below a value.

The checker's own proofs are tried, cheapest first, on the groups that the
checker rebuilds, so that what is written is what it will look for. Only the
thresholds of the dynamic program are found here, by arrays: the checker's
program runs once for each of them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nest_opt.certify.checker import Coverage, Group, Proofs, Space, Steps, Table
from nest_opt.cost.objective import objective_weights
from nest_opt.cost.sharding import Sharding
from nest_opt.cost.table_file import table_digest, table_to_json
from nest_opt.dp.chain import INFINITE, UNLIMITED, Chain
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.levels import maximal
from nest_opt.dp.matrices import NO_ROUNDS, LazyMatrices
from nest_opt.dp.thresholds import load_weight
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Configuration, Zero
from nest_opt.problem.files import problem_digest, to_json_data
from nest_opt.problem.schedule import Schedule


def least_pipeline(chain: Chain, weights: Any, most_sync: int) -> int:
    """Return the least of the objective without max Z, over plans with Z up to a limit."""
    weight, best, most = load_weight(weights), INFINITE, UNLIMITED
    slowest = chain.least_max_time(most_sync)
    if slowest >= INFINITE:
        return 2**200
    if not weights.sum_weight:
        return weight * slowest
    found = 2**200
    while most >= slowest:
        total, ends = chain.least_sum_time(most, most_sync)
        if total >= INFINITE:
            break
        time, _ = chain.measure(ends)
        found = min(found, total + weight * time)
        if not weight:
            break
        most = min(time - 1, (found - 1 - total) // weight)
    del best
    return found


class Maker:
    def __init__(self, costs: Costs, family: str) -> None:
        self.problem = costs.problem
        self.table = costs.table
        self.data = to_json_data(costs.problem)
        import json

        self.table_data = json.loads(json.dumps(table_to_json(costs.table)))
        self.space = Space(self.data, self.table_data, family)
        self.source = DefaultSource(costs)
        self.checked = Table(self.table_data, self.space)

    def chain(self, proofs: Proofs, group: Group, steps: Steps | None):
        stages = proofs.stages(group, steps)
        if stages is None:
            return None, None
        b, k = self.space.pairs[group.pair]
        k = Configuration(*k)
        sched = Schedule(*self.space.schedules[group.schedule])
        zero = Zero(*self.space.zeros[group.zero])
        m = self.space.rounds(group.pair, group.replicas)
        matrices = self.source.matrices((b, k), Sharding(zero, group.replicas, m))
        w = objective_weights(self.space.objective, group.stages, m, sched)
        keys = []
        sk = []
        for levels, flight, held, copies, extra in stages[::-1]:
            shared = maximal(copies) if matrices.has_rounds else NO_ROUNDS
            keys.append((w, (maximal(levels), flight, held or None, shared)))
            sk.append((group.replicas, maximal(copies), extra))
        time = LazyMatrices(matrices.load, keys)
        fill = LazyMatrices(matrices.fill, keys) if w.has_loads else None
        if not w.sync or not (matrices.has_sync(group.replicas) or any(s[2] for s in sk)):
            return Chain(time, None, fill), w
        hides = self.space.objective == "fill-drain" and sched.name != "zb-h1"
        return Chain(
            time, LazyMatrices(matrices.exposed_sync if hides else matrices.sync, sk), fill
        ), w

    def slabs(self, proofs, group, steps) -> list[int] | None:
        chain, w = self.chain(proofs, group, steps)
        if chain is None:
            return []
        found: list[int] = []
        most = UNLIMITED
        while True:
            below = proofs.least - 1 - least_pipeline(chain, w, most)
            if below < 0:
                return found
            if below >= most:
                return None
            found.append(below)
            most = below
