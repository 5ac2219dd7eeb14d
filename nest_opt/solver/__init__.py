"""The solver boundary: the only room that knows HiGHS.

`status` holds the types of an answer and imports no solver; `options` holds
what may be asked for; `highs` runs HiGHS through Pyomo.
"""
