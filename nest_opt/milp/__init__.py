"""The mixed-integer linear programs of a problem, in Pyomo, one module per family of rows.

`exact` is the way in and imports no solver until it is called; all other
modules may import Pyomo. `coefficients` and what it uses know no Pyomo:
they are the numbers, the families are the rows.
"""
