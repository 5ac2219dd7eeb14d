"""What is said of the smallest number of devices."""

from nest_opt.cli.explain import Failure, failure, shortage_text
from nest_opt.cli.smallest import NothingFits, Smallest
from nest_opt.cli.units import count_text
from nest_opt.models.cluster_template import ClusterTemplate


def smallest_facts(template: ClusterTemplate, found: Smallest | NothingFits) -> dict[str, str]:
    """Return rows on the smallest number of devices and on what is short just below it."""
    if isinstance(found, NothingFits):
        return {"smallest": _nothing_fits_text(template, found)}
    unit = int(template.unit.value)
    numbers = f"any number up to {unit:,} or multiple of {unit:,} is to be had"
    return {
        "smallest": f"{count_text(found.devices, 'device')} of {template.name} ({numbers})",
        "below": _below_text(found),
    }


def fewest_text(template: ClusterTemplate, found: Smallest | NothingFits) -> str:
    """Return the remedy of having more devices."""
    if isinstance(found, NothingFits):
        return f"({_nothing_fits_text(template, found)})"
    return (
        f"or {count_text(found.devices, 'device')} of {template.name}, the fewest on which "
        "something fits"
    )


def _nothing_fits_text(template: ClusterTemplate, found: NothingFits) -> str:
    """Return that nothing fits, on however many devices."""
    return f"nothing fits on any number of devices of {template.name} up to {found.devices:,}"


def below_failure(found: Smallest) -> Failure | None:
    """Return why nothing fits on the next smaller number; None where no search says so."""
    result = found.below_result
    return None if result is None else failure(result)


def _below_text(found: Smallest) -> str:
    if found.below is None:
        return "there is no smaller number"
    why = below_failure(found)
    reason = str(found.below_error) if why is None else shortage_text(why)
    return f"on {count_text(found.below, 'device')}: {reason}"
