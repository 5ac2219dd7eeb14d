"""Better devices for a plan: a local search under the costs of pairs."""

from nest_opt.placing.improve import ImprovedPlacement, improve_placement

__all__ = ["ImprovedPlacement", "improve_placement"]
