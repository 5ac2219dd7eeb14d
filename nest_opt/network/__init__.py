"""Networks: what a hop or a collective costs between given devices."""

from nest_opt.network.hierarchical import HierarchicalNetwork
from nest_opt.network.planned import device_names, planned_levels
from nest_opt.network.protocol import Network, build_network

__all__ = [
    "HierarchicalNetwork",
    "Network",
    "build_network",
    "device_names",
    "planned_levels",
]
