"""The tables of docs/hardware.md: `python -m nest_opt.models.hardware_page docs/hardware.md`."""

import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path

from nest_opt.models.accelerator import Accelerator
from nest_opt.models.cluster_template import ClusterTemplate
from nest_opt.models.clusters import CLUSTERS, SHAPED_CLUSTERS
from nest_opt.models.figure import Figure
from nest_opt.models.hardware import ACCELERATORS

MARKER = "<!-- Everything below is written by python -m nest_opt.models.hardware_page -->"

_UNITS = {
    "_flops": ("TFLOP/s", Decimal("1e12")),
    "_bytes_per_s": ("GB/s", Decimal("1e9")),
    "_bytes": ("GB", Decimal("1e9")),
    "latency_s": ("us", Decimal("1e-6")),
    "call_s": ("us", Decimal("1e-6")),
    "launch_s": ("us", Decimal("1e-6")),
    "batch_s": ("ms", Decimal("1e-3")),
    "multiprocessors": ("", Decimal(1)),
    "unit": ("devices", Decimal(1)),
    "size": ("subgroups", Decimal(1)),
    "oversubscription": ("to 1", Decimal(1)),
}


def printed(name: str, figure: Figure) -> tuple[str, str]:
    """Return a figure's value, all its digits, and its unit, scaled for reading."""
    ending = next((ending for ending in _UNITS if name.endswith(ending)), None)
    unit, scale = ("share", Decimal(1)) if ending is None else _UNITS[ending]
    return f"{(Decimal(figure.value) / scale).normalize():f}", unit


def tables() -> str:
    """Return the tables of all accelerators and clusters as markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "## Accelerators"
    for accelerator in ACCELERATORS:
        yield from _accelerator(accelerator)
    yield ""
    yield "## Clusters"
    for cluster in (*CLUSTERS, *SHAPED_CLUSTERS):
        yield from _cluster(cluster)


def _accelerator(accelerator: Accelerator) -> Iterator[str]:
    yield from _heading(accelerator.name, accelerator.aliases, accelerator.note)
    yield from _table(accelerator.figures())


def _cluster(cluster: ClusterTemplate) -> Iterator[str]:
    yield from _heading(cluster.name, cluster.aliases, cluster.summary)
    path = ", ".join(level.name for level in cluster.levels)
    yield f"Accelerator: {cluster.accelerator}. Levels, innermost first: {path}."
    yield ""
    yield from _table(cluster.figures())


def _heading(name: str, aliases: tuple[str, ...], text: str) -> Iterator[str]:
    yield ""
    yield f"### {name}"
    yield ""
    if aliases:
        yield f"Also: {', '.join(aliases)}."
        yield ""
    if text:
        yield text
        yield ""


def _table(figures: Iterable[tuple[str, Figure]]) -> Iterator[str]:
    yield "| figure | value | unit | guess | source |"
    yield "|---|---|---|---|---|"
    for name, figure in figures:
        value, unit = printed(name, figure)
        source = figure.source.removeprefix("guess: ")
        yield f"| {name} | {value} | {unit} | {'guess' if figure.guess else ''} | {source} |"


def main(page: Path) -> None:
    """Write the tables into the page, below its marker."""
    prose = page.read_text(encoding="utf-8").partition(MARKER)[0]
    page.write_text(f"{prose}{MARKER}\n\n{tables()}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
