"""Readers of networks in other formats; each yields a `LinkGraph` from untrusted text."""

from nest_opt.network.imports.edge_list import parse_edge_list
from nest_opt.network.imports.graphml import parse_graphml
from nest_opt.network.imports.nvidia_topology import parse_nvidia_topology
from nest_opt.network.imports.slurm import FabricLevel, parse_slurm_topology
from nest_opt.network.imports.text import read_text

__all__ = [
    "FabricLevel",
    "parse_edge_list",
    "parse_graphml",
    "parse_nvidia_topology",
    "parse_slurm_topology",
    "read_text",
]
