"""Plans of the dynamic program to begin a search of placements on a graph with.

Levels of a graph are worth what their worst pair is, so a graph with one slow
link offers no fast groups, and degrees that would use its better part are not
looked at. So the program is run on two sorts of levels: those that `derived_hierarchy`
finds, and levels that are worth what the *best* group of their size is, under
orders that put devices into groups of 2, 4, 8, ... What such a plan
costs on the graph, the costs of pairs tell.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_search import search_all
from nest_opt.network.derived import Worst, derived_hierarchy, levels_of_worst
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.order import device_order
from nest_opt.network.pair_levels import PairLevels
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.pairwise import on_devices
from nest_opt.plan.placement import Placement
from nest_opt.plan.progress import Progress
from nest_opt.problem import HierarchicalSpec, Problem


def derived_starts(
    problem: Problem, network: GraphNetwork, top: int = 1, progress: Progress | None = None
) -> list[Placement]:
    """Return the best plans on the derived levels of the graph's order, on the graph's devices.

    Parameters
    ----------
    problem
        The problem; its own network is passed over.
    network
        The graph.
    top
        Plans of so many cells.
    progress
        Of the search: called with (groups done, groups, best value in ps or None).

    A KeyboardInterrupt is passed on.

    Raises
    ------
    InstanceError
        If the problem has no legal degrees.
    """
    order = device_order(network.graph, metric=network.router.metric)
    levels = derived_hierarchy(network, order.devices, order.sizes, "alone")
    return _plans(problem, levels, order.devices, top, progress)


def hopeful_starts(
    problem: Problem,
    network: GraphNetwork,
    pairs: PairLevels,
    top: int = 1,
    progress: Progress | None = None,
) -> list[Placement]:
    """Return the best plans on levels worth what the best group is, on the graph's devices.

    Parameters and errors are those of `derived_starts`; `pairs` are the network's.
    """
    count = network.device_count
    sizes = tuple(_powers(count))
    order = device_order(network.graph, sizes, network.router.metric)
    bounds = (*sizes, count)
    terms = [pairs.best_terms(size) for size in bounds]
    worst = [
        Worst(max(t.latency_s for t in terms[: place + 1]), 1 / max(one.byte_s, Fraction(1, 2**60)))
        for place, one in enumerate(terms)
    ]
    return _plans(problem, levels_of_worst(bounds, worst), order.devices, top, progress)


def _powers(count: int) -> Iterator[int]:
    """Yield 2, 4, 8, ... below a number of devices."""
    size = 2
    while size < count:
        yield size
        size *= 2


def _plans(
    problem: Problem,
    levels: HierarchicalSpec,
    order: Sequence[int],
    top: int,
    progress: Progress | None,
) -> list[Placement]:
    cluster = problem.cluster.model_copy(update={"network": levels})
    costs = Costs(problem.model_copy(update={"cluster": cluster}))
    found = search_all(costs, cell_source(costs), progress, top)
    if found.status == "interrupted":
        raise KeyboardInterrupt
    return [on_devices(ranked.placement, order) for ranked in found.ranking]
