"""Plans for networks asked pair by pair: a local search on devices."""

from nest_opt.placing.improve import ImprovedPlacement, improve_placement
from nest_opt.placing.on_graph import SHORT, GraphPlacement, place_on_graph

__all__ = ["SHORT", "GraphPlacement", "ImprovedPlacement", "improve_placement", "place_on_graph"]
