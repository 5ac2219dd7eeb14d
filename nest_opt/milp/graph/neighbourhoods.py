"""The program of any split with most parts fixed: a search around an incumbent.

The device of the largest load and a few others keep their parts between
them, however they share them, and all other parts stay. Such programs are
small, and their optima are out of the reach of moves.
"""

from collections.abc import Iterator
from itertools import combinations

from nest_opt.milp.graph.build import GraphFormulation
from nest_opt.milp.graph.heuristic import Stages

# An improvement by a smaller share may be made of tolerances alone.
LEAST_STEP = 1e-4
NODES = 100
MOST_OTHERS = 3


def neighbourhoods(loads: list[int]) -> Iterator[frozenset[int]]:
    """Yield sets of stages, small ones first, those with little load first; never all stages."""
    top = loads.index(max(loads))
    others = sorted((stage for stage in range(len(loads)) if stage != top), key=loads.__getitem__)
    for number in range(1, min(MOST_OTHERS, len(others) - 1) + 1):
        for chosen in combinations(others, number):
            yield frozenset({top, *chosen})


def free_only(formulation: GraphFormulation, stages: Stages, free: frozenset[int]) -> None:
    """Leave the parts of some stages free among these, and keep all others where they are.

    By bounds, which are handed over alone: a fixed variable would have its
    rows written anew.
    """
    for (part, stage), variable in formulation.model.a.items():
        here = stages.stage_of[part]
        loose = stage in free and here in free
        variable.setlb(0 if loose else int(here == stage))
        variable.setub(1 if loose else int(here == stage))


def free_all(formulation: GraphFormulation) -> None:
    """Leave all parts free again."""
    for variable in formulation.model.a.values():
        variable.setlb(0)
        variable.setub(1)
