"""What `show` prints."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from nest_opt.api import VerifyResult
from nest_opt.cli.picture import device_picture
from nest_opt.cli.solve_report import headline
from nest_opt.cli.stage_table import degree_facts, facts, speed_facts, stage_table
from nest_opt.cli.verify_report import verdict


def show_report(result: VerifyResult, width: int) -> Iterator[RenderableType]:
    """Yield the parts of a readable plan, for a terminal of so many columns."""
    plan, evaluation = result.plan, result.evaluation
    speed = {}
    if evaluation:
        yield headline("violations" if result.violations else "legal", plan, evaluation)
        speed = speed_facts(plan, evaluation)
    else:
        yield Text("not evaluated: the plan's form is broken", style="bold red")
    yield facts({**speed, **degree_facts(plan, broken=evaluation is None)})
    yield stage_table(plan, evaluation)
    yield from device_picture(plan, width)
    if result.violations:
        yield Text()
        yield from verdict(result.violations)
