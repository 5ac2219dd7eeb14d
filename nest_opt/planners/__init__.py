"""Baselines: planners of their own behind one protocol, evaluated by the one evaluator."""

from dataclasses import replace

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
    mcmc, drawn = McmcPlanner(seed), RandomPlanner(seed)
    if budget is not None:
        mcmc, drawn = replace(mcmc, budget=budget), replace(drawn, budget=budget)
    found: tuple[Planner, ...] = (ManualPlanner(), mcmc, PhazePlanner(), AlpaPlanner(), drawn)
    return {planner.name: planner for planner in found}
