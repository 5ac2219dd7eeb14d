"""The catalogues of models, clusters and accelerators, as tables and as JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from nest_opt.cli.json_derived import model_json
from nest_opt.cli.units import bytes_text, number_text, percent_text
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.catalogue import MODELS, CatalogueEntry
from nest_opt.models.cluster_template import ClusterTemplate
from nest_opt.models.clusters import CLUSTERS, SHAPED_CLUSTERS
from nest_opt.models.hardware import ACCELERATORS
from nest_opt.models.parameters import active_parameters, parameters


@dataclass(frozen=True)
class Catalogue:
    """How a catalogue is shown.

    Attributes
    ----------
    columns
        Headings; those of numbers have a leading `>`.
    rows, objects
        Return the rows of the table, and the JSON objects.
    """

    columns: tuple[str, ...]
    rows: Callable[[], list[tuple[str, ...]]]
    objects: Callable[[], list[dict[str, Any]]]

    def table(self) -> Table:
        """Return the catalogue as a table."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
        for heading in self.columns:
            justify: Any = "right" if heading.startswith(">") else "left"
            table.add_column(heading.removeprefix(">"), justify=justify, overflow="fold")
        for row in self.rows():
            table.add_row(*row)
        return table


def _model_row(entry: CatalogueEntry) -> tuple[str, ...]:
    spec = entry.spec
    every, active = parameters(spec), active_parameters(spec)
    return (
        spec.name,
        f"{every:,}",
        "all" if active == every else f"{active:,}",
        f"{spec.layers:,}",
        f"{spec.hidden:,}",
        f"{spec.sequence_length:,}",
    )


def _cluster_row(template: ClusterTemplate) -> tuple[str, ...]:
    accelerator = template.accelerator
    unit = f"{template.unit.value:,}"
    return template.name, accelerator, unit, _levels_text(template)


def _levels_text(template: ClusterTemplate) -> str:
    """Return the levels, innermost first, with their sizes."""
    return ", ".join(
        level.name if level.size is None else f"{level.name} {level.size.value:,}"
        for level in template.levels
    )


def _accelerator_row(accelerator: Accelerator) -> tuple[str, ...]:
    tera = number_text(float(accelerator.matmul_16bit_flops.value) / 10**12)
    efficiency = accelerator.matmul_efficiency.value
    return (
        accelerator.name,
        tera,
        percent_text(int(efficiency * 1000), 1000),
        bytes_text(int(accelerator.memory_bytes.value)),
        bytes_text(accelerator.reserve_bytes),
        f"{bytes_text(int(accelerator.memory_bandwidth_bytes_per_s.value))}/s",
        f"{bytes_text(int(accelerator.fast_link_bytes_per_s.value))}/s",
    )


def _model_object(entry: CatalogueEntry) -> dict[str, Any]:
    return {**model_json(entry.spec), "aliases": list(entry.aliases)}


def _cluster_object(template: ClusterTemplate) -> dict[str, Any]:
    return {
        "name": template.name,
        "aliases": list(template.aliases),
        "accelerator": template.accelerator,
        "unit": int(template.unit.value),
        "levels": [
            {"name": level.name, "size": None if level.size is None else int(level.size.value)}
            for level in template.levels
        ],
        "summary": template.summary,
    }


def _accelerator_object(accelerator: Accelerator) -> dict[str, Any]:
    return {
        "name": accelerator.name,
        "aliases": list(accelerator.aliases),
        **{name: float(figure.value) for name, figure in accelerator.figures()},
        "reserve_bytes": accelerator.reserve_bytes,
        "note": accelerator.note,
    }


CATALOGUES: dict[str, Catalogue] = {
    "models": Catalogue(
        ("model", ">parameters", ">active", ">blocks", ">hidden", ">default\nlength"),
        lambda: [_model_row(entry) for entry in MODELS],
        lambda: [_model_object(entry) for entry in MODELS],
    ),
    "clusters": Catalogue(
        ("cluster", "accelerator", ">unit", "network levels"),
        lambda: [_cluster_row(template) for template in (*CLUSTERS, *SHAPED_CLUSTERS)],
        lambda: [_cluster_object(template) for template in (*CLUSTERS, *SHAPED_CLUSTERS)],
    ),
    "accelerators": Catalogue(
        (
            "accelerator",
            ">16-bit\nTFLOP/s",
            ">attained",
            ">memory",
            ">of it\nreserved",
            ">memory\nbandwidth",
            ">fast link,\na direction",
        ),
        lambda: [_accelerator_row(accelerator) for accelerator in ACCELERATORS],
        lambda: [_accelerator_object(accelerator) for accelerator in ACCELERATORS],
    ),
}
