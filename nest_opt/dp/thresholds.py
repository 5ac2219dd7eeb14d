"""The least objective inside one cell: two maxima traded by thresholds.

Keeping one bottleneck-optimal plan is not enough once sync matters, since
max Z trades against max F and sum F. Both loops below lower a threshold to
just under what the last plan had; `docs/dp.md` proves that no plan is lost.
"""

from dataclasses import dataclass, field

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import INFINITE, UNLIMITED, Chain, first_ends
from nest_opt.dp.passes import Passes, Stages


@dataclass
class Best:
    """The least value found within a limit, and the thresholds of all plans that have it.

    With `ties`, plans equal to the limit are still looked for after one is
    found; without, only better ones.
    """

    limit: int
    ties: bool
    value: int | None = None
    thresholds: set[tuple[int, int]] = field(default_factory=set)

    def offer(self, value: int, most_time: int, most_sync: int) -> None:
        """Record a plan's value and its (max F, max Z)."""
        if value == self.value:
            self.thresholds.add((most_time, most_sync))
        elif value <= self.limit:
            self.value, self.thresholds = value, {(most_time, most_sync)}
            self.limit = value if self.ties else value - 1


def load_weight(weights: ObjectiveWeights) -> int:
    """Return what the largest `time` of a chain counts: its loads have their weights inside."""
    return 1 if weights.has_loads else weights.max_weight


def least_value(
    chain: Passes[Stages], weights: ObjectiveWeights, limit: int, ties: bool = False
) -> Best:
    """Return the least objective value of a cell that is at most `limit`."""
    best = Best(limit, ties)
    if weights.sum_weight:
        _sum_max_max(chain, load_weight(weights), best)
    else:
        _max_max(chain, weights, best)
    return best


def _sum_max_max(chain: Passes[Stages], weight: int, best: Best) -> None:
    """Minimise sum F + weight * max F + max Z.

    For each limit x on Z, a threshold T on F goes down from infinity. A plan
    with F <= T has sum >= s and Z >= z_low, so it is of use only if weight *
    max F <= limit - s - z_low; plans with max F from the last one's up cannot
    beat it at the same x, unless their Z is smaller, which a later x finds.
    """
    z_low = chain.least_max_sync(UNLIMITED)
    most_sync = UNLIMITED
    while z_low < INFINITE:
        least_sum, ends = chain.least_sum_time(UNLIMITED, most_sync)
        least_max = chain.least_max_time(most_sync)
        if least_sum + weight * least_max + z_low > best.limit or least_sum >= INFINITE:
            return
        total, largest_sync = least_sum, 0
        while total < INFINITE:
            time, sync = chain.measure(ends)
            # With weight 0 no threshold on F belongs to the value.
            best.offer(total + weight * time + sync, time if weight else UNLIMITED, sync)
            largest_sync = max(largest_sync, sync)
            if weight == 0:
                break
            most_time = min(time - 1, (best.limit - total - z_low) // weight)
            if most_time < least_max:
                break
            total, ends = chain.least_sum_time(most_time, most_sync)
        most_sync = min(largest_sync - 1, best.limit - least_sum - weight * least_max)
        if most_sync < z_low:
            return


def _max_max(chain: Passes[Stages], weights: ObjectiveWeights, best: Best) -> None:
    """Minimise weight * max F + max Z (without Z if the objective has none).

    The limit y on Z goes down from infinity; least max F can only grow.
    """
    weight = load_weight(weights)
    z_low = chain.least_max_sync(UNLIMITED) if weights.sync else 0
    most_sync = UNLIMITED
    while z_low < INFINITE:
        time = chain.least_max_time(most_sync)
        if time >= INFINITE or weight * time + z_low > best.limit:
            return
        sync = chain.least_max_sync(time) if weights.sync else 0
        best.offer(weight * time + sync, time, sync if weights.sync else UNLIMITED)
        most_sync = min(sync - 1, best.limit - weight * time)
        if not weights.sync or most_sync < z_low:
            return


def smallest_ends(chain: Chain, weights: ObjectiveWeights, value: int) -> tuple[int, ...]:
    """Return the lexicographically smallest stage ends with the cell's least value."""
    best = least_value(chain, weights, value, ties=True)
    found = []
    for time, sync in best.thresholds:
        budget = 0
        if weights.sum_weight:
            budget = value - (load_weight(weights) * time if time < UNLIMITED else 0) - sync
        passes = chain.sum_suffixes(time, sync, weights.sum_weight)
        found.append(first_ends(passes, budget))
    return min(found)
