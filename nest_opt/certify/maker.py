"""Make certificates: find, for every group of plans, a proof that nothing in it is below a value.

The checker's own proofs are tried, cheapest first, on the groups that the
checker rebuilds, so that what is written is what it will look for. Only the
thresholds of its dynamic program are found here.
"""

from collections.abc import Sequence

from nest_opt.certify.checker import ENDLESS, Group, Proofs, Rows, Steps


def slabs(proofs: Proofs, group: Group, steps: Steps | None) -> list[int] | None:
    """Return thresholds on max Z with which the dynamic program proves a group, None if it fails."""
    stages, fills = proofs.stages(group, steps), proofs.fills(group)
    if stages is None or fills >= proofs.least:
        return []
    chain = proofs.chain(group, stages, proofs.least - 1 - fills)
    found: list[int] = []
    most = ENDLESS
    while (below := proofs.least - 1 - least_pipeline(proofs, chain, most)) >= 0:
        if below >= most:
            return None
        found.append(below)
        most = below
    return found


def least_pipeline(proofs: Proofs, chain: Sequence[Rows], most_sync: int) -> int:
    """Return the least sum of fills and largest load of the plans with Z up to a limit."""
    best, most_load = ENDLESS, ENDLESS
    while most_load >= 0:
        total, load = least_sum(chain, most_load, most_sync)
        if total >= ENDLESS:
            break
        best = min(best, total + load)
        most_load = min(load - 1, best - 1 - total)
    return best


def least_sum(chain: Sequence[Rows], most_load: int, most_sync: int) -> tuple[int, int]:
    """Return the least sum of fills under thresholds, and the largest load of such a plan."""
    after: dict[int, tuple[int, int]] = {max(high for row in chain[-1].values() for high, *_ in row) if any(chain[-1].values()) else 0: (0, 0)}
    for rows in reversed(chain):
        after = {
            low: min(
                [
                    (fill + after[high][0], max(load, after[high][1]))
                    for high, load, fill, sync in row
                    if load <= most_load and sync <= most_sync
                ],
                default=(ENDLESS, 0),
            )
            for low, row in rows.items()
        }
    return after[0]
