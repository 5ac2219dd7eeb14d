"""A plan for a graph: the dynamic program's plans, and better devices for the best of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nest_opt.errors import InstanceError
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.pair_levels import PairLevels
from nest_opt.placing.improve import ImprovedPlacement, improve_placement
from nest_opt.placing.starts import derived_starts, hopeful_starts
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.pairwise import pairwise_costs
from nest_opt.plan.placement import Placement
from nest_opt.plan.progress import Progress
from nest_opt.problem import Problem

# Plans of the dynamic program on each sort of levels, and those that are searched for longer.
STARTS = 8
FINALISTS = 3
# Changes valued for each start, and for each finalist.
SHORT, LONG = 300, 2_500


@dataclass(frozen=True)
class GraphPlacement:
    """What was found for a graph, under the costs of its pairs.

    Attributes
    ----------
    costs
        The costs.
    found
        The best placement, on the graph's device numbers.
    derived_ps, starts_ps
        The value of the dynamic program's plan on derived levels, and the
        least of its plans on both sorts of levels, before any search.
    interrupted
        Whether a KeyboardInterrupt ended the searches.
    """

    costs: Costs
    found: ImprovedPlacement
    derived_ps: int
    starts_ps: int
    interrupted: bool


def place_on_graph(
    problem: Problem,
    network: GraphNetwork,
    *,
    starts: int = STARTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> GraphPlacement:
    """Search for a plan on a graph; no bound comes with it.

    The same in every run. A KeyboardInterrupt ends the local searches with the best plan
    seen; one before them is passed on.

    Parameters
    ----------
    problem
        The problem; its own network is passed over.
    network
        A graph of as many devices.
    starts
        Plans of the dynamic program on each sort of levels.
    seed
        Of the local search.
    progress
        Called with (steps done, steps, best value in ps or None) of the search that is on.

    Raises
    ------
    InstanceError
        If the problem has no plan, and as `pairwise_costs`.
    """
    costs = pairwise_costs(problem, network)
    assert isinstance(costs.network, PairLevels)
    plans = derived_starts(problem, network, starts, progress)
    plans += hopeful_starts(problem, network, costs.network, starts, progress)
    if not plans:
        raise InstanceError(
            "problem: found no plan that fits the memory on any devices: `nest-opt solve` says why"
        )
    tried = list(_searched(costs, plans, SHORT, seed, progress))
    tried.sort(key=lambda one: one.value_ps)
    interrupted = any(one.interrupted for one in tried)
    finals: list[ImprovedPlacement] = []
    if not interrupted:
        # The plan on derived levels is searched for long whatever others there are.
        finals = list(_searched(costs, plans[:1], LONG, seed, progress))
        best = [one.placement for one in tried[:FINALISTS]]
        others = () if finals[0].interrupted else best
        finals += _searched(costs, others, LONG, seed + 1, progress)
        interrupted = any(one.interrupted for one in finals)
    found = min((*finals, *tried[:1]), key=lambda one: one.value_ps)
    derived = improve_placement(costs, plans[0], evaluations=0)
    lowest = min(one.start_ps for one in tried)
    return GraphPlacement(costs, found, derived.value_ps, lowest, interrupted)


def _searched(
    costs: Costs,
    placements: Iterable[Placement],
    evaluations: int,
    seed: int,
    progress: Progress | None,
) -> Iterator[ImprovedPlacement]:
    """Yield what a search makes of each of some plans, until one is interrupted."""
    for placement in placements:
        found = improve_placement(
            costs, placement, evaluations=evaluations, seed=seed, progress=progress
        )
        yield found
        if found.interrupted:
            return
