"""The dynamic program over downsets: exact for placement graphs with a contiguous split.

Stages are differences of consecutive downsets of the precedence order. It is
the program of Tarnawski et al. 2020 (arXiv:2006.16423, section 5), run under
limits on the value that keep most pairs of downsets from being looked at;
`docs/placement_graphs.md` proves that nothing is lost.
"""

from nest_opt.dp.graph.infeasible import obstacle
from nest_opt.dp.graph.search import GraphSearchResult, search

__all__ = ["GraphSearchResult", "obstacle", "search"]
