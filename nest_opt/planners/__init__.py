"""Baselines and ablations: planners behind one protocol, evaluated by the one evaluator."""

from dataclasses import replace

from nest_opt.planners.ablations import EqualStagesPlanner, MemoryLastPlanner, OneBandwidthPlanner
from nest_opt.planners.alpa import AlpaPlanner
from nest_opt.planners.manual import ManualPlanner
from nest_opt.planners.mcmc import McmcPlanner
from nest_opt.planners.phaze import PhazePlanner
from nest_opt.planners.protocol import Outcome, Planner
from nest_opt.planners.random_plans import RandomPlanner

__all__ = [
    "AlpaPlanner",
    "EqualStagesPlanner",
    "ManualPlanner",
    "McmcPlanner",
    "MemoryLastPlanner",
    "OneBandwidthPlanner",
    "Outcome",
    "PhazePlanner",
    "Planner",
    "RandomPlanner",
    "ablations",
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


def ablations() -> dict[str, Planner]:
    """Return every ablation of this package's own search by name."""
    found: tuple[Planner, ...] = (
        OneBandwidthPlanner("no-network", "none"),
        OneBandwidthPlanner("inner-bandwidth", "inner"),
        OneBandwidthPlanner("mean-bandwidth", "mean"),
        OneBandwidthPlanner("outer-bandwidth", "outer"),
        MemoryLastPlanner("memory-last", first=True),
        MemoryLastPlanner("memory-repaired", first=False),
        EqualStagesPlanner(),
    )
    return {planner.name: planner for planner in found}
