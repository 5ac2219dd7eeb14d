"""The cell source that a problem's cost model asks for."""

from nest_opt.dp.artifact_source import ArtifactSource
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.source import CellSource
from nest_opt.plan.evaluate import Costs


def cell_source(costs: Costs) -> CellSource:
    """Return the cells of a problem under its cost model."""
    return ArtifactSource(costs) if costs.is_artifact else DefaultSource(costs)
