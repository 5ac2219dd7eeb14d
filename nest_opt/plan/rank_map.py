"""The rank map: which process of a launcher runs what part of a plan, on which device.

Ranks are numbered by an order (`rank_order`), devices are where the plan puts
them. Host h has the devices h * n to h * n + n - 1, with n devices per host;
of a graph whose devices are all called HOST:NUMBER, hosts are those of the names. Device
numbers are the plan's, but on rails and dragonflies the network's own.
Launchers number the processes of a host by their ranks: `local_rank`. Where
that is not the device's number on the host, `visible_devices` of the host says
which devices its processes must see, in the order of their local ranks.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from nest_opt.errors import PlanError
from nest_opt.network.planned import device_names as network_names
from nest_opt.network.planned import device_vertices
from nest_opt.plan.check import check_devices
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.hosts import host_names
from nest_opt.plan.plan import DeviceNumber, Plan
from nest_opt.plan.rank_order import RankOrder, check_order, rank_order
from nest_opt.problem.base import Degree, Frozen, Identifier
from nest_opt.problem.cluster import MAX_DEVICES, Cluster
from nest_opt.problem.networks import DragonflySpec, GraphKind, RailsSpec

_DEVICE = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,191}):([0-9]{1,6})", re.ASCII)

Index = Annotated[int, Field(strict=True, ge=0, lt=MAX_DEVICES)]


class MappedRank(Frozen):
    """One process.

    `device_name` is the network's name of the device, its number if it has none.
    `replica` and `stage` are its places in dp and pp. `stream` is ep_degree *
    replica + ep: ranks of different streams train on different sequences.
    """

    rank: Index
    replica: Index
    stage: Index
    tp: Index
    cp: Index
    ep: Index
    stream: Index
    device: DeviceNumber
    device_name: Identifier
    host: Identifier
    local_rank: Index
    local_device: Index


class MappedHost(Frozen):
    """A host in use: the devices that its processes see, in the order of local ranks."""

    name: Identifier
    visible_devices: tuple[Index, ...] = Field(min_length=1)

    @property
    def is_plain(self) -> bool:
        """Whether each local rank is its device's number on the host."""
        return self.visible_devices == tuple(range(len(self.visible_devices)))


class RankMap(Frozen):
    """Every rank of a plan, and the hosts in use in the order of device numbers.

    `order` names the dimensions from the fastest to the slowest. `devices_per_host`
    is null where the names of devices tell their hosts.
    """

    format: Literal["nest-opt-rank-map"] = "nest-opt-rank-map"
    version: Literal[1] = 1
    order: Annotated[str, Field(pattern=r"^(tp|cp|ep|dp|pp)(-(tp|cp|ep|dp|pp)){4}$")]
    devices_per_host: Degree | None
    hosts: tuple[MappedHost, ...] = Field(min_length=1)
    ranks: tuple[MappedRank, ...] = Field(min_length=1)


class _Place(NamedTuple):
    """A place of a plan: coordinates named as the dimensions of an order, and the device."""

    tp: int
    cp: int
    ep: int
    dp: int
    pp: int
    device: int


class _Site(NamedTuple):
    """Where a device is."""

    host: str
    local_device: int


def rank_map(
    plan: Plan | GraphPlan,
    order: str = "megatron",
    hosts: Sequence[str] | None = None,
    devices_per_host: int | None = None,
) -> RankMap:
    """Return which rank is which part of a plan, and where it runs.

    Parameters
    ----------
    plan
        Of a pipeline; whether it is legal is for `verify` to say.
    order
        The order of global ranks: `megatron`, `megatron-tp-pp-dp`,
        `deepspeed`, `torchtitan`, or all of tp, cp, ep, dp and pp from the
        fastest to the slowest, as in `tp-cp-ep-dp-pp`.
    hosts
        Names of hosts in the order of device numbers; host-0, host-1, ...
        without them.
    devices_per_host
        Devices of each host; the size of the innermost network level without
        it. Without either, devices of a graph that are called HOST:NUMBER tell both.

    Raises
    ------
    PlanError
        If the plan is of a placement graph, uses a device twice or one that
        the cluster does not have, the order is none or its runtime cannot
        form the plan's groups, or the hosts do not suffice.
    """
    if isinstance(plan, GraphPlan):
        raise PlanError(
            "plan: found one of a placement graph, which has devices and no ranks, a plan of a "
            "pipeline is needed: its own file lists what is on each device"
        )
    chosen = rank_order(order)
    check_order(chosen, plan)
    limit = plan.problem.cluster.device_count
    broken = next(check_devices(plan.placement().device_map, limit), None)
    if broken is not None:
        raise PlanError(f"devices: found {broken.found}, {broken.allowed}: {broken.remedy}")
    device_names = network_names(plan.problem.cluster)
    sites = _named_sites(device_names) if hosts is None and devices_per_host is None else None
    size = None if sites else _devices_per_host(plan, devices_per_host)
    places = _ordered(plan, chosen)
    at: Sequence[int] = range(limit)
    if sites is None:
        at = _own_numbers(plan.problem.cluster)
        sites = _numbered_sites(hosts, size or 1, max(at[place.device] for place in places))
    visible: dict[str, list[int]] = {}
    ranks = []
    for rank, place in enumerate(places):
        site = sites[at[place.device]]
        on_host = visible.setdefault(site.host, [])
        ranks.append(
            MappedRank(
                rank=rank,
                replica=place.dp,
                stage=place.pp,
                tp=place.tp,
                cp=place.cp,
                ep=place.ep,
                stream=plan.ep * place.dp + place.ep,
                device=place.device,
                device_name=device_names[place.device],
                host=site.host,
                local_rank=len(on_host),
                local_device=site.local_device,
            )
        )
        on_host.append(site.local_device)
    return RankMap(
        order=chosen.text,
        devices_per_host=size,
        hosts=tuple(
            MappedHost(name=host, visible_devices=tuple(visible[host]))
            for host in dict.fromkeys(site.host for site in sites)
            if host in visible
        ),
        ranks=tuple(ranks),
    )


def _named_sites(names: Sequence[str]) -> list[_Site] | None:
    """Return the hosts and devices that names such as node1:0 tell, None if not all do."""
    found = [_DEVICE.fullmatch(name) for name in names]
    if not all(found):
        return None
    return [_Site(match.group(1), int(match.group(2))) for match in found if match]


def _own_numbers(cluster: Cluster) -> Sequence[int]:
    """Return the number of every plan device by which hosts are counted.

    Rails and dragonflies have their hosts in the order of their own devices, whatever
    order the planner was given; elsewhere groups of the planner's numbers are hosts.
    """
    if isinstance(cluster.network, DragonflySpec | RailsSpec):
        return device_vertices(cluster)
    return range(cluster.device_count)


def _numbered_sites(hosts: Sequence[str] | None, size: int, last: int) -> list[_Site]:
    """Return the hosts of devices up to the last in use, so many on each."""
    names = host_names(hosts, last // size + 1)
    return [_Site(names[device // size], device % size) for device in range(last + 1)]


def _devices_per_host(plan: Plan, given: int | None) -> int:
    network = plan.problem.cluster.network
    if given is None and isinstance(network, GraphKind) and network.planned_groups is None:
        raise PlanError(
            "devices_per_host: found none for a graph that tells neither levels nor hosts, 1 at "
            "least is needed: say it, give cluster.network.level_sizes, or call devices HOST:NUMBER"
        )
    if given is None:
        return network.innermost_size
    if not 1 <= given <= MAX_DEVICES:
        raise PlanError(
            f"devices_per_host: found {given}, 1 to {MAX_DEVICES:,} are allowed: correct it"
        )
    return given


def _ordered(plan: Plan, order: RankOrder) -> list[_Place]:
    """Return all places by rank: sorted by the slowest dimension first."""
    slowest_first = [_Place._fields.index(name) for name in reversed(order.dimensions)]
    return sorted(_places(plan), key=lambda place: tuple(place[index] for index in slowest_first))


def _places(plan: Plan) -> Iterator[_Place]:
    """Yield every place: in a block tp is fastest, then cp, then ep."""
    device_map = plan.placement().device_map
    for stage, k in enumerate(plan.configurations):
        for replica in range(plan.dp):
            for number, device in enumerate(device_map.block(replica, stage)):
                rest, tp = divmod(number, k.tp)
                ep, cp = divmod(rest, k.cp)
                yield _Place(tp, cp, ep, replica, stage, device)
