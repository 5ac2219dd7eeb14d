"""The cell source that a problem's cost model asks for."""

from nest_opt.dp.artifact_source import ArtifactSource
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.source import CellSource
from nest_opt.errors import InstanceError
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem


def cell_source(costs: Costs) -> CellSource:
    """Return the cells of a problem under its cost model.

    Raises
    ------
    InstanceError
        If no plan can have any of the numbers of stages that the search names.
    """
    _refuse_too_many_stages(costs.problem)
    return ArtifactSource(costs) if costs.is_artifact else DefaultSource(costs)


def _refuse_too_many_stages(problem: Problem) -> None:
    """Refuse a search space whose numbers of stages no plan can have."""
    block = min(configuration.block_size for _, configuration in problem.candidates)
    most = min(len(problem.model.ids), problem.cluster.device_count // block)
    if problem.search.pp and min(problem.search.pp) > most > 0:
        raise InstanceError(
            f"search.pp: found {list(problem.search.pp)}, at most {most} stages are possible "
            f"({len(problem.model.ids)} layers, {problem.cluster.device_count} devices, blocks of "
            f"{block} or more): lower it, or add devices"
        )
