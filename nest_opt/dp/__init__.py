"""The structured dynamic program: exact in the aligned family.

Cells (everything but the stages) are enumerated best bound first; inside a
cell an interval DP from the last stage backwards finds the best stages.
"""

from nest_opt.dp.search import SearchResult, search

__all__ = ["SearchResult", "search"]
