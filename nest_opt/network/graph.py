"""A network as a graph: devices, switches, and directed links between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import NoReturn

from nest_opt.errors import InstanceError
from nest_opt.problem.base import MAX_BYTES, MAX_SECONDS, exact_decimal, first_repeated

MAX_GRAPH_DEVICES = 2**17
MAX_VERTICES = 2**18
MAX_LINKS = 2**21
MAX_NAME_CHARACTERS = 200
SHOWN_NAMES = 6

Number = int | float | str | Decimal | Fraction


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a cable, or of several that a switch treats as one.

    Attributes
    ----------
    source, target
        Vertex numbers.
    bandwidth
        Bytes/s that one transfer gets at most.
    capacity
        Bytes/s that all transfers on the link share; at least the bandwidth.
        A trunk of eight cables has eight times the bandwidth of one.
    latency_s
        Seconds, the share of the switch at its end included.
    """

    source: int
    target: int
    bandwidth: Fraction
    capacity: Fraction
    latency_s: Fraction


@dataclass(frozen=True)
class LinkGraph:
    """Vertices 0, 1, ..., the devices first, and the links between them.

    Attributes
    ----------
    names
        Name of every vertex; those of the devices come first, in the order of
        their numbers.
    device_count
        K, how many of the vertices are devices.
    links
        In an order that decides ties between routes.
    devices_forward
        Whether a device carries what others send to each other, as the chips
        of a torus do. Switches always do.

    Raises
    ------
    InstanceError
        If a name is empty, too long or used twice, a link leads nowhere or to
        itself, a number is out of range, or there are too many of anything.
    """

    names: tuple[str, ...]
    device_count: int
    links: tuple[Link, ...]
    devices_forward: bool = False

    def __post_init__(self) -> None:
        _check_counts(len(self.names), self.device_count, len(self.links))
        for name in self.names:
            if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
                raise InstanceError(
                    f"vertices: found a name of {len(name)} characters ({name[:20]!r}), 1 to "
                    f"{MAX_NAME_CHARACTERS} are allowed: rename it"
                )
        twice = first_repeated(self.names)
        if twice is not None:
            raise InstanceError(f"vertices: found 2 named {twice!r}, 1 is allowed: rename one")
        for link in self.links:
            self._check(link)

    def _check(self, link: Link) -> None:
        for end in (link.source, link.target):
            if not 0 <= end < len(self.names):
                raise InstanceError(
                    f"links: found vertex number {end}, 0 to {len(self.names) - 1} are allowed: "
                    "correct it"
                )
        if link.source == link.target:
            raise InstanceError(
                f"links: found one from {self.names[link.source]!r} to itself, none is allowed: "
                "remove it"
            )
        if not 0 < link.bandwidth <= link.capacity:
            raise InstanceError(
                f"link {self.link_name(link)}: found bandwidth {float(link.bandwidth):g} and "
                f"capacity {float(link.capacity):g} bytes/s, more than 0 and a capacity no less "
                "than the bandwidth are needed: raise the capacity or lower the bandwidth"
            )
        if link.latency_s < 0:
            raise InstanceError(
                f"link {self.link_name(link)}: found latency {float(link.latency_s):g} s, at "
                "least 0 is needed: correct it"
            )

    @property
    def vertex_count(self) -> int:
        """Number of devices and switches."""
        return len(self.names)

    @cached_property
    def number_of(self) -> Mapping[str, int]:
        """The number of every vertex by its name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def out_links(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex, the numbers of the links that leave it, ascending."""
        return _by_vertex(len(self.names), (link.source for link in self.links))

    @cached_property
    def in_links(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex, the numbers of the links that enter it, ascending."""
        return _by_vertex(len(self.names), (link.target for link in self.links))

    @cached_property
    def out_capacity(self) -> tuple[Fraction, ...]:
        """Per vertex, bytes/s of all links that leave it."""
        return tuple(self._sum(numbers) for numbers in self.out_links)

    @cached_property
    def in_capacity(self) -> tuple[Fraction, ...]:
        """Per vertex, bytes/s of all links that enter it."""
        return tuple(self._sum(numbers) for numbers in self.in_links)

    def _sum(self, numbers: tuple[int, ...]) -> Fraction:
        return sum((self.links[number].capacity for number in numbers), Fraction(0))

    @cached_property
    def latency_unit(self) -> int:
        """The q for which every latency is a whole number of 1/q seconds."""
        _, latencies = _ranked([link.latency_s for link in self.links])
        return lcm(*(latency.denominator for latency in latencies))

    @cached_property
    def latencies(self) -> tuple[int, ...]:
        """Per link, its latency in units of 1 / `latency_unit` seconds."""
        ranks, latencies = _ranked([link.latency_s for link in self.links])
        whole = [int(latency * self.latency_unit) for latency in latencies]
        return tuple(whole[rank] for rank in ranks)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Per link, the rank of its bandwidth among those that occur, 0 the narrowest."""
        return self._bandwidth_ranks[0]

    @cached_property
    def bandwidths(self) -> tuple[Fraction, ...]:
        """The bandwidths that occur, ascending."""
        return self._bandwidth_ranks[1]

    @cached_property
    def _bandwidth_ranks(self) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
        return _ranked([link.bandwidth for link in self.links])

    @cached_property
    def capacity_ranks(self) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
        """Per link, the rank of its capacity among those that occur; and those, ascending."""
        return _ranked([link.capacity for link in self.links])

    def forwards(self, vertex: int) -> bool:
        """Whether a vertex carries what others send to each other."""
        return self.devices_forward or vertex >= self.device_count

    def link_name(self, link: Link) -> str:
        """Return a link's ends, for a message."""
        return f"{self.names[link.source]!r} -> {self.names[link.target]!r}"

    def device(self, name: str) -> int:
        """Return the number of a device by its name.

        Raises
        ------
        InstanceError
            If no vertex has the name, or a switch has it.
        """
        number = self.number_of.get(name)
        if number is None or number >= self.device_count:
            what = "which is a switch" if number is not None else "which the graph does not have"
            raise InstanceError(
                f"devices: found {name!r}, {what}; its devices are "
                f"{shown(self.names[: self.device_count])}: correct the name"
            )
        return number


def _ranked(numbers: Sequence[Fraction]) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
    """Return the rank of each number among those that occur, and those, ascending.

    Links of one kind share their numbers, and hashing a fraction is slow.
    """
    one_of = {id(number): number for number in numbers}
    found = tuple(sorted(set(one_of.values())))
    place = {number: rank for rank, number in enumerate(found)}
    rank_of = {key: place[number] for key, number in one_of.items()}
    return tuple(rank_of[id(number)] for number in numbers), found


def _by_vertex(count: int, ends: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, end in enumerate(ends):
        found[end].append(number)
    return tuple(map(tuple, found))


def _check_counts(vertices: int, devices: int, links: int) -> None:
    limits = (
        ("devices", devices, 1, min(vertices, MAX_GRAPH_DEVICES)),
        ("vertices", vertices, 1, MAX_VERTICES),
        ("links", links, 0, MAX_LINKS),
    )
    for what, found, least, most in limits:
        if not least <= found <= most:
            raise InstanceError(
                f"{what}: found {found:,}, {least} to {most:,} are allowed: make the network "
                f"{'larger' if found < least else 'smaller'}"
            )


def shown(names: Sequence[str]) -> str:
    """Return the first few names for a message, quoted, in their order, and how many more."""
    text = ", ".join(map(repr, names[:SHOWN_NAMES]))
    more = len(names) - SHOWN_NAMES
    return f"{text} and {more:,} more" if more > 0 else text


def exact(value: Number, what: str, least: int = 0, most: int = MAX_BYTES) -> Fraction:
    """Return a number exactly; a float stands for its shortest decimal form.

    Raises
    ------
    InstanceError
        If it is no finite number, or not in the range; `what` names it.
    """
    if isinstance(value, Fraction):
        number = value
    else:
        try:
            decimal = exact_decimal(value)
        except ValueError as error:
            raise InstanceError(f"{what}: {error}") from error
        if not isinstance(decimal, Decimal):
            raise InstanceError(f"{what}: found {value!r}, a number is needed: correct the value")
        number = Fraction(decimal)
    if not least <= number <= most:
        raise InstanceError(
            f"{what}: found {float(number):g}, {least} to {most:g} is allowed: correct the value"
        )
    return number


def exact_bandwidth(value: Number, what: str) -> Fraction:
    """Return bytes/s exactly, more than 0 and at most 10^15."""
    number = exact(value, what)
    if not number:
        raise InstanceError(
            f"{what}: found 0 bytes/s, more than 0 is needed: leave out a link that carries nothing"
        )
    return number


def exact_latency(value: Number, what: str) -> Fraction:
    """Return seconds exactly, 0 to 10^6."""
    return exact(value, what, most=int(MAX_SECONDS))


@dataclass(frozen=True)
class LinkKind:
    """What links of one kind have in common; see `Link`."""

    bandwidth: Fraction
    latency_s: Fraction
    capacity: Fraction

    @classmethod
    def of(
        cls,
        bandwidth_bytes_per_s: Number,
        latency_s: Number,
        capacity_bytes_per_s: Number | None = None,
        what: str = "link",
    ) -> "LinkKind":
        """Build one from numbers as a user writes them; the capacity is the bandwidth if None."""
        bandwidth = exact_bandwidth(bandwidth_bytes_per_s, f"{what}: bandwidth")
        return cls(
            bandwidth,
            exact_latency(latency_s, f"{what}: latency"),
            bandwidth
            if capacity_bytes_per_s is None
            else exact(capacity_bytes_per_s, f"{what}: capacity", most=MAX_BYTES * MAX_VERTICES),
        )

    def link(self, source: int, target: int) -> Link:
        """Return a link of this kind in one direction."""
        return Link(source, target, self.bandwidth, self.capacity, self.latency_s)

    def both_ways(self, one: int, other: int) -> tuple[Link, Link]:
        """Return a link of this kind in each direction."""
        return self.link(one, other), self.link(other, one)


def without_links(graph: LinkGraph, pairs: Iterable[tuple[str, str]]) -> LinkGraph:
    """Return the graph without the links from one named vertex to another (that direction only).

    Raises
    ------
    InstanceError
        If there is no such link.
    """
    gone = {_ends(graph, *pair) for pair in pairs}
    return replace(
        graph,
        links=tuple(link for link in graph.links if (link.source, link.target) not in gone),
    )


def with_links(graph: LinkGraph, changed: Mapping[tuple[str, str], LinkKind]) -> LinkGraph:
    """Return the graph with other figures for some links, such as a cable that runs slow.

    Raises
    ------
    InstanceError
        If there is no such link.
    """
    kinds = {_ends(graph, *pair): kind for pair, kind in changed.items()}
    return replace(
        graph,
        links=tuple(
            kinds[link.source, link.target].link(link.source, link.target)
            if (link.source, link.target) in kinds
            else link
            for link in graph.links
        ),
    )


def _ends(graph: LinkGraph, source: str, target: str) -> tuple[int, int]:
    for name in (source, target):
        if name not in graph.number_of:
            raise InstanceError(
                f"links: found {name!r}, which the graph does not have: correct the name"
            )
    ends = graph.number_of[source], graph.number_of[target]
    if not any(graph.links[number].target == ends[1] for number in graph.out_links[ends[0]]):
        _refuse_link(source, target)
    return ends


def _refuse_link(source: str, target: str) -> NoReturn:
    raise InstanceError(
        f"links: found {source!r} -> {target!r}, which the graph does not have: correct the names"
    )
