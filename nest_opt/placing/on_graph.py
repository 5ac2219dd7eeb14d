"""A plan for a graph: the dynamic program's plans, and better devices for the best of them."""

from dataclasses import dataclass

from nest_opt.errors import InstanceError
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.pair_levels import PairLevels
from nest_opt.placing.improve import ImprovedPlacement, improve_placement
from nest_opt.placing.starts import derived_starts, hopeful_starts
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.pairwise import pairwise_costs
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
    """

    costs: Costs
    found: ImprovedPlacement
    derived_ps: int
    starts_ps: int


def place_on_graph(
    problem: Problem, network: GraphNetwork, *, starts: int = STARTS, seed: int = 0
) -> GraphPlacement:
    """Search for a plan on a graph; no bound comes with it.

    The same in every run.

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

    Raises
    ------
    InstanceError
        If the problem has no plan, and as `pairwise_costs`.
    """
    costs = pairwise_costs(problem, network)
    assert isinstance(costs.network, PairLevels)
    plans = derived_starts(problem, network, starts)
    plans += hopeful_starts(problem, network, costs.network, starts)
    if not plans:
        raise InstanceError(
            "problem: found no plan that fits the memory on any devices: `nest-opt solve` says why"
        )
    tried = [improve_placement(costs, one, evaluations=SHORT, seed=seed) for one in plans]
    tried.sort(key=lambda one: one.value_ps)
    # The plan on derived levels is searched for long whatever others there are.
    finals = [
        improve_placement(costs, plans[0], evaluations=LONG, seed=seed),
        *(
            improve_placement(costs, one.placement, evaluations=LONG, seed=seed + 1)
            for one in tried[:FINALISTS]
        ),
    ]
    best = min((*finals, *tried[:1]), key=lambda one: one.value_ps)
    derived = improve_placement(costs, plans[0], evaluations=0)
    lowest = min(one.start_ps for one in tried)
    return GraphPlacement(costs, best, derived.value_ps, lowest)
