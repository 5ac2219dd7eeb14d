"""Contradictions between methods, evaluator and checker: defects of the package."""

from nest_opt.errors import ConsistencyError
from nest_opt.plan.violation import Violation


def illegal(method: str, placement: object, violation: Violation) -> ConsistencyError:
    """Return the error that a method returned an illegal placement."""
    return ConsistencyError(
        f"the {method} returned {placement}, which is illegal ({violation}): "
        "please report this problem file"
    )


def check_value(method: str, placement: object, value_ps: int, evaluated_ps: int) -> None:
    """Refuse a method's value that is not the evaluator's."""
    if evaluated_ps != value_ps:
        raise ConsistencyError(
            f"the {method} values {placement} at {value_ps} ps, "
            f"the evaluator at {evaluated_ps} ps: please report this problem file"
        )


def check_bound(placement: object, value_ps: int, bound_ps: int | None) -> None:
    """Refuse a program's plan that the dynamic program says does not exist."""
    if bound_ps is None or value_ps < bound_ps:
        raise ConsistencyError(
            f"the integer program found {placement} at {value_ps} ps, of which the "
            f"dynamic program says that {claim(bound_ps)}: please report this problem file"
        )


def claim(bound_ps: int | None) -> str:
    """Return what a bound says about plans; None is that of an infeasible problem."""
    return "none exists" if bound_ps is None else f"none is below {bound_ps} ps"
