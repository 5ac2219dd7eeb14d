"""`nest-opt import network`: a description of a cluster's links as the network of a problem."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nest_opt.cli.amounts import bandwidth, duration, keyed, parsed
from nest_opt.cli.group import FormatGroup, json_option
from nest_opt.cli.number_types import factor, whole_list

if TYPE_CHECKING:
    from nest_opt.network.derived import Traffic
    from nest_opt.network.graph import LinkGraph, LinkKind
    from nest_opt.network.routing import Metric
    from nest_opt.problem import Problem
    from nest_opt.problem.hierarchical import HierarchicalSpec
    from nest_opt.problem.networks import GraphKind

MOST_HEIGHTS = 16
SWITCHES = ("node", *(f"switch-{height}" for height in range(1, MOST_HEIGHTS + 1)))
LINKS = ("NV", "PIX", "PXB", "PHB", "NODE", "SYS")


@click.group(
    "network",
    cls=FormatGroup,
    invoke_without_command=True,
    subcommand_metavar="FORMAT FILE [OPTIONS]",
)
@click.pass_context
def import_network_command(ctx: click.Context) -> None:
    """Turn a description of links into the network of a problem."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@dataclass(frozen=True)
class NetworkFormat:
    """A description of links.

    Attributes
    ----------
    name, summary
        As in `nest-opt import network NAME FILE`, and a sentence for the help.
    read
        Called with text and name of the file, and each of `options` by its name.
    options
        Options of this format alone.
    """

    name: str
    summary: str
    read: "Callable[..., LinkGraph]"
    options: tuple[click.Option, ...] = ()


def _read_slurm(
    text: str,
    name: str,
    devices_per_node: int,
    bandwidths: tuple[str, ...],
    latencies: tuple[str, ...],
    ratios: tuple[str, ...],
) -> "LinkGraph":
    from nest_opt.network.imports import FabricLevel, parse_slurm_topology

    rates = keyed(bandwidths, "--bandwidth", SWITCHES, bandwidth)
    times = keyed(latencies, "--latency", SWITCHES, duration)
    shares = keyed(ratios, "--oversubscription", SWITCHES, factor)
    highest = max((SWITCHES.index(key) for key in (*rates, *times, *shares)), default=0)
    levels = [
        FabricLevel(
            _needed(rates, key, "--bandwidth", "50GB/s"),
            _needed(times, key, "--latency", "2us"),
            shares.get(key, 1),
        )
        for key in SWITCHES[: highest + 1]
    ]
    return parse_slurm_topology(text, levels, devices_per_node, name)


def _read_nvidia(
    text: str,
    name: str,
    nvlinks_per_device: int | None,
    bandwidths: tuple[str, ...],
    latencies: tuple[str, ...],
    capacities: tuple[str, ...],
) -> "LinkGraph":
    from nest_opt.network.imports import parse_nvidia_topology
    from nest_opt.network.imports.nvidia_topology import MOST_NVLINKS

    rates = keyed(bandwidths, "--bandwidth", LINKS, bandwidth)
    times = keyed(latencies, "--latency", LINKS, duration)
    shared = keyed(capacities, "--capacity", LINKS, bandwidth)
    kinds = {
        key: _kind(key, rates, times, shared)
        for key in LINKS
        if key in rates or key in times or key in shared
    }
    most = MOST_NVLINKS if nvlinks_per_device is None else nvlinks_per_device
    return parse_nvidia_topology(text, kinds, most, name)


def _kind(
    key: str,
    rates: Mapping[str, Fraction],
    times: Mapping[str, Fraction],
    shared: Mapping[str, Fraction],
) -> "LinkKind":
    from nest_opt.network.graph import LinkKind

    return LinkKind.of(
        _needed(rates, key, "--bandwidth", "25GB/s"),
        _needed(times, key, "--latency", "2us"),
        shared.get(key),
        key,
    )


def _needed(found: Mapping[str, Fraction], key: str, option: str, example: str) -> Fraction:
    if key not in found:
        raise click.BadParameter(
            f"found none for {key}, one is needed: add {option} {key}={example}, with your figure",
            param_hint=option,
        )
    return found[key]


def _read_graphml(text: str, name: str, devices_forward: bool) -> "LinkGraph":
    from nest_opt.network.imports import parse_graphml

    return parse_graphml(text, devices_forward, name)


def _read_edges(text: str, name: str) -> "LinkGraph":
    from nest_opt.network.imports import parse_edge_list

    return parse_edge_list(text, name)


def _keyed_option(name: str, variable: str, metavar: str, help_text: str) -> click.Option:
    return click.Option([name, variable], multiple=True, metavar=metavar, help=help_text)


_SLURM_KEYS = "node is the inside of a node, switch-1 the links up to what nodes hang on, and so on"
FORMATS = (
    NetworkFormat(
        "slurm",
        "Slurm's topology.conf, tree or block; it has no bandwidths, so options give them.",
        _read_slurm,
        (
            click.Option(
                ["--devices-per-node"],
                type=click.IntRange(1, 2**17),
                required=True,
                metavar="N",
                help="Devices of every node, which the file does not say.",
            ),
            _keyed_option(
                "--bandwidth",
                "bandwidths",
                "KEY=50GB/s",
                f"Per device and direction: {_SLURM_KEYS}. Repeatable.",
            ),
            _keyed_option(
                "--latency",
                "latencies",
                "KEY=2us",
                "Between two devices that meet there, by the same keys. Repeatable.",
            ),
            _keyed_option(
                "--oversubscription",
                "ratios",
                "KEY=X",
                "What the devices below could use over what is there; 1 unless given. Repeatable.",
            ),
        ),
    ),
    NetworkFormat(
        "nvidia-topo",
        "The table of `nvidia-smi topo -m`: one node; options give the figures of its links.",
        _read_nvidia,
        (
            _keyed_option(
                "--bandwidth",
                "bandwidths",
                "KEY=25GB/s",
                "Per direction: NV is one NVLink; PIX, PXB, PHB, NODE and SYS as in the table. "
                "Repeatable.",
            ),
            _keyed_option(
                "--latency",
                "latencies",
                "KEY=2us",
                "From one device to another, by the same keys. Repeatable.",
            ),
            _keyed_option(
                "--capacity",
                "capacities",
                "KEY=100GB/s",
                "What all transfers there share; the bandwidth unless given. Repeatable.",
            ),
            click.Option(
                ["--nvlinks-per-device"],
                type=click.IntRange(1, 64),
                metavar="N",
                help="NVLinks that a device has; where the table shows more there is a switch.  "
                "[default: 18]",
            ),
        ),
    ),
    NetworkFormat(
        "graphml",
        "GraphML with bandwidths and latencies of edges.",
        _read_graphml,
        (
            click.Option(
                ["--devices-forward"], is_flag=True, help="Devices carry what others send."
            ),
        ),
    ),
    NetworkFormat("edges", "A list of edges, the package's own plain format.", _read_edges),
)


@dataclass(frozen=True)
class _Choices:
    """How levels are derived (see `nest_opt.network.derived`), and what is written.

    `form` is `graph`, a network of that type whose order and groups are
    found once and written out, or `levels`, a hierarchical network.
    """

    form: Literal["graph", "levels"]
    traffic: "Traffic"
    routing: "Metric"
    sharing: bool
    sizes: tuple[int, ...] | None


def _command(entry: NetworkFormat) -> click.Command:
    """Return the command that imports one format."""

    @click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
    @click.option(
        "--as",
        "form",
        type=click.Choice(("graph", "levels")),
        default="graph",
        show_default=True,
        help="Write the graph itself, or the levels that a search sees of it.",
    )
    @click.option(
        "--traffic",
        type=click.Choice(("alone", "rings", "any")),
        default="rings",
        show_default=True,
        help="What levels take to be under way at once.",
    )
    @click.option(
        "--routing",
        type=click.Choice(("latency", "links", "widest")),
        default="latency",
        show_default=True,
        help="What routes minimise, or with widest maximise.",
    )
    @click.option("--sharing", is_flag=True, help="Routes that tie share the bytes.")
    @click.option(
        "--level-sizes",
        metavar="N,N",
        callback=parsed(whole_list),
        help="Devices in a group of each level but the outermost.  [default: found]",
    )
    @click.option(
        "--into",
        metavar="PROBLEM",
        type=click.Path(path_type=Path),
        help="Write this problem with the network in place of its own.",
    )
    @click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Write here instead of on standard output.",
    )
    @json_option
    def run(
        path: Path,
        form: Literal["graph", "levels"],
        traffic: "Traffic",
        routing: "Metric",
        sharing: bool,
        level_sizes: tuple[int, ...] | None,
        into: Path | None,
        output: Path | None,
        as_json: bool,
        **options: Any,
    ) -> int:
        choices = _Choices(form, traffic, routing, sharing, level_sizes)
        return _import(entry, path, choices, into, output, as_json, options)

    run.__doc__ = entry.summary
    make: Callable[[Callable[..., int]], click.Command] = click.command(entry.name)
    command = make(run)
    command.params[1:1] = entry.options
    return command


def _import(
    entry: NetworkFormat,
    path: Path,
    choices: _Choices,
    into: Path | None,
    output: Path | None,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    from nest_opt.cli.json_output import print_json
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.network.imports import read_text
    from nest_opt.problem.files import read_problem, to_json_data, to_json_text

    if output is not None:
        check_output(output, path)
    problem = None if into is None else read_problem(into)
    graph = entry.read(read_text(path), str(path), **options)
    found = _found(graph, choices)
    network = found.network
    if problem is not None:
        problem = _with_network(problem, network, str(into))
    text = to_json_text(network if problem is None else problem)
    if output is not None:
        write_text(output, text)
    if as_json:
        print_json(
            {
                "status": "imported",
                "format": entry.name,
                "output": None if output is None else str(output),
                "devices": found.names,
                "levels": to_json_data(found.levels)["levels"],
                "network": to_json_data(network),
                "problem": None if problem is None else to_json_data(problem),
            }
        )
    elif output is not None:
        click.echo(f"wrote {output}: {_described(found.levels)}")
    else:
        click.echo(text, nl=False)
    return 0


@dataclass(frozen=True)
class _Found:
    """What a graph becomes: the network to write, its levels, and the devices in their order."""

    network: "HierarchicalSpec | GraphKind"
    levels: "HierarchicalSpec"
    names: list[str]


def _found(graph: "LinkGraph", choices: _Choices) -> _Found:
    from nest_opt.network.derived import derived_hierarchy
    from nest_opt.network.graph_network import GraphNetwork
    from nest_opt.network.order import device_order
    from nest_opt.network.planned import network_of_graph

    routed = GraphNetwork(graph, choices.routing, choices.sharing)
    order = device_order(graph, choices.sizes, choices.routing)
    levels = derived_hierarchy(routed, order.devices, order.sizes, choices.traffic)
    names = [graph.names[device] for device in order.devices]
    if choices.form == "levels":
        return _Found(levels, levels, names)
    network = network_of_graph(
        graph,
        order=names,
        level_sizes=order.sizes,
        routing=choices.routing,
        sharing=choices.sharing,
        traffic=choices.traffic,
    )
    return _Found(network, levels, names)


def _with_network(
    problem: "Problem", network: "HierarchicalSpec | GraphKind", name: str
) -> "Problem":
    from nest_opt.problem import Problem
    from nest_opt.problem.files import to_json_data
    from nest_opt.problem.validation import build

    data = to_json_data(problem)
    return build(
        Problem, {**data, "cluster": {**data["cluster"], "network": to_json_data(network)}}, name
    )


def _described(network: "HierarchicalSpec") -> str:
    from nest_opt.cli.units import bytes_text, count_text, time_text

    levels = (
        f"{level.name} {level.size:,} at {bytes_text(int(level.bandwidth_bytes_per_s))}/s and "
        f"{time_text(round(level.latency_s * 10**12))}"
        for level in network.levels
    )
    return f"{count_text(network.device_count, 'device')}, {'; '.join(levels)}"


for _entry in FORMATS:
    import_network_command.add_command(_command(_entry))
