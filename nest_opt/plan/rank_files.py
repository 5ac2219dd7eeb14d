"""Rank maps as launchers read them; `docs/rank_maps.md` has each format's source."""

import json
from collections.abc import Callable, Mapping
from itertools import groupby

from nest_opt.errors import PlanError
from nest_opt.plan.rank_map import RankMap


def json_text(ranks: RankMap) -> str:
    """Return the whole map as JSON, one line a host and a rank."""
    parts = []
    for name, value in ranks:
        if isinstance(value, tuple):
            rows = ",\n".join(f"  {json.dumps(dict(row))}" for row in value)
            parts.append(f' "{name}": [\n{rows}\n ]')
        else:
            parts.append(f' "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def hostfile(ranks: RankMap) -> str:
    """Return a hostfile of DeepSpeed or MPI: `host slots=n`, in the order of ranks.

    Launchers fill host after host. Above a host whose devices are not used
    from the first and in order stands a comment with CUDA_VISIBLE_DEVICES.

    Raises
    ------
    PlanError
        If the ranks of a host do not follow each other.
    """
    visible = {host.name: host for host in ranks.hosts}
    lines: list[str] = []
    first: dict[str, int] = {}
    for name, run in groupby(ranks.ranks, key=lambda rank: rank.host):
        numbers = [rank.rank for rank in run]
        if name in first:
            raise PlanError(
                f"hostfile: found ranks {first[name]} and {numbers[0]} on {name} and others in "
                "between on another host, ranks that follow each other are needed on each host: "
                "use slurm or rankfile, or an order that fits the plan's (tp-cp-ep-pp-dp numbers "
                "one replica after the other)"
            )
        first[name] = numbers[0]
        if not visible[name].is_plain:
            lines.append(
                f"# {name}: CUDA_VISIBLE_DEVICES={_devices(visible[name].visible_devices)}"
            )
        lines.append(f"{name} slots={len(numbers)}")
    return _text(lines)


def slurm_hostfile(ranks: RankMap) -> str:
    """Return a file for SLURM_HOSTFILE and `srun --distribution=arbitrary`: a host per rank."""
    return _text([rank.host for rank in ranks.ranks])


def rankfile(ranks: RankMap) -> str:
    """Return an Open MPI rankfile: `rank N=host slot=M`, M being the device on the host.

    Open MPI reads a slot as a logical core to bind the process to.
    """
    return _text([f"rank {rank.rank}={rank.host} slot={rank.local_device}" for rank in ranks.ranks])


def visible_devices(ranks: RankMap) -> str:
    """Return `host devices`, the devices as CUDA_VISIBLE_DEVICES takes them, one line a host."""
    return _text([f"{host.name} {_devices(host.visible_devices)}" for host in ranks.hosts])


def _devices(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


RANK_FILES: Mapping[str, Callable[[RankMap], str]] = {
    "json": json_text,
    "hostfile": hostfile,
    "slurm": slurm_hostfile,
    "rankfile": rankfile,
    "visible-devices": visible_devices,
}
