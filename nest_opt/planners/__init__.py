"""Baselines: planners of their own behind one protocol, evaluated by the one evaluator."""

from nest_opt.planners.alpa import AlpaPlanner
from nest_opt.planners.manual import ManualPlanner
from nest_opt.planners.mcmc import McmcPlanner
from nest_opt.planners.phaze import PhazePlanner
from nest_opt.planners.protocol import Outcome, Planner
from nest_opt.planners.random_plans import RandomPlanner

__all__ = [
    "AlpaPlanner",
    "ManualPlanner",
    "McmcPlanner",
    "Outcome",
    "PhazePlanner",
    "Planner",
    "RandomPlanner",
    "planners",
]


def planners(seed: int = 0, budget: int | None = None) -> dict[str, Planner]:
    """Return every baseline by name.

    Parameters
    ----------
    seed
        Of those that draw.
    budget
        Of those that draw; None for each one's own.
    """
    drawn = {"seed": seed} | ({} if budget is None else {"budget": budget})
    found: tuple[Planner, ...] = (
        ManualPlanner(),
        McmcPlanner(**drawn),
        PhazePlanner(),
        AlpaPlanner(),
        RandomPlanner(**drawn),
    )
    return {planner.name: planner for planner in found}
