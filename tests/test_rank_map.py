"""The rank map: numbers of ranks, groups of runtimes, and the files of launchers."""

import json
import random
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_running import run, run_json
from samples import problem_data, sample
from test_planned_networks import DRAGONFLY, RAILS, on

import nest_opt
from nest_opt.cli.export_ranks_command import SHOWN_RANKS
from nest_opt.errors import InstanceError, PlanError
from nest_opt.network import device_names
from nest_opt.plan.evaluate import block_groups, sync_group
from nest_opt.plan.hosts import parse_hosts
from nest_opt.plan.plan import Plan, PlanStage
from nest_opt.plan.rank_files import RANK_FILES, hostfile, json_text, rankfile, slurm_hostfile
from nest_opt.plan.rank_map import RankMap, rank_map
from nest_opt.plan.schema import file_schema
from nest_opt.problem import Problem
from nest_opt.problem.files import to_json_text
from nest_opt.problem.profile import Group
from nest_opt.problem.validation import build

GROUPS: tuple[Group, ...] = ("tp", "cp", "ep")
PROBLEM = sample(layers=6, sizes=(8, 8))
SLOTS = PROBLEM.cluster.device_count


def any_plan(rng: random.Random, problem: Problem = PROBLEM, **fixed: Any) -> Plan:
    """Return a plan of random degrees, order, pitch and devices, some of them idle."""
    slots = problem.cluster.device_count
    while True:
        degrees = {name: rng.choice((1, 1, 2, 3)) for name in ("tp", "cp", "ep", "dp")}
        degrees.update({name: fixed[name] for name in degrees if name in fixed})
        stages = fixed.get("pp") or rng.choice((1, 2, 3))
        tps = [degrees["tp"]] * stages
        if fixed.get("staged"):
            tps = [rng.choice((1, 2, 4)) for _ in range(stages)]
        sizes = [tp * degrees["cp"] * degrees["ep"] for tp in tps]
        order = fixed.get("order") or rng.choice(("pp-inner", "dp-inner", "listed"))
        units = (degrees["dp"], sum(sizes)) if order != "dp-inner" else (stages, 0)
        unit = units[1] or degrees["dp"] * max(sizes)
        if units[0] * unit <= slots:
            break
    anywhere = iter(rng.sample(range(slots), degrees["dp"] * sum(sizes)))
    interleaved = stages > 1 and not fixed.get("staged") and rng.random() < 0.3
    chunks = 2 if interleaved else 1
    cuts = [*sorted(rng.sample(range(1, 6), stages * chunks - 1)), 6]
    parts = [list(range(low, high)) for low, high in zip([0, *cuts], cuts, strict=False)]
    return Plan(
        problem=problem,
        microbatch=1,
        **{**degrees, "tp": tps[0]},
        schedule="interleaved" if interleaved else "1f1b",
        order=order,
        pitch=None if order == "listed" else rng.randint(unit, max(unit, slots // units[0])),
        stages=tuple(
            PlanStage(
                layers=tuple(f"layer-{n}" for part in parts[stage::stages] for n in part),
                recompute="none",
                chunks=tuple(len(part) for part in parts[stage::stages]) if interleaved else None,
                tp=None if tps[stage] == tps[0] else tps[stage],
                devices=tuple(
                    tuple(next(anywhere) for _ in range(sizes[stage])) for _ in range(degrees["dp"])
                )
                if order == "listed"
                else None,
            )
            for stage in range(stages)
        ),
    )


def grid_groups(sizes: dict[str, int], varying: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Yield the ranks that differ in some dimensions alone, on a grid whose first is fastest."""
    stride = {name: prod(list(sizes.values())[:place]) for place, name in enumerate(sizes)}
    fixed = [name for name in sizes if name not in varying]
    for place in product(*(range(sizes[name]) for name in fixed)):
        first = sum(stride[name] * at for name, at in zip(fixed, place, strict=True))
        # The first of those that vary is the fastest, as in the grid.
        for_each = [[stride[name] * at for at in range(sizes[name])] for name in reversed(varying)]
        yield tuple(first + sum(steps) for steps in product(*for_each))


@pytest.mark.parametrize("seed", range(30))
def test_ranks_and_used_devices_are_in_bijection(seed: int) -> None:
    """Each rank has a device of its own, where the plan has that (replica, stage, tp, cp, ep)."""
    plan = any_plan(random.Random(seed), staged=seed % 3 == 0)
    found = rank_map(plan, order=random.Random(seed).choice(("tp-cp-ep-dp-pp", "pp-dp-tp-ep-cp")))
    blocks = plan.placement().device_map
    assert [rank.rank for rank in found.ranks] == list(range(blocks.devices_used))
    assert len({rank.device for rank in found.ranks}) == blocks.devices_used
    for rank in found.ranks:
        tp = plan.configurations[rank.stage].tp
        place = rank.tp + tp * (rank.cp + plan.cp * rank.ep)
        assert blocks.block(rank.replica, rank.stage)[place] == rank.device
        assert (rank.host, rank.local_device) == (f"host-{rank.device // 8}", rank.device % 8)
        assert rank.stream == plan.ep * rank.replica + rank.ep
    for host in found.hosts:
        ranks = [rank for rank in found.ranks if rank.host == host.name]
        assert [rank.local_rank for rank in ranks] == list(range(len(ranks)))
        assert host.visible_devices == tuple(rank.local_device for rank in ranks)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("order", ["megatron", "megatron-tp-pp-dp", "deepspeed", "torchtitan"])
def test_groups_that_a_runtime_forms_are_those_of_the_plan(order: str, seed: int) -> None:
    """Groups by strides over global ranks hold the devices that the cost model has in a group.

    Megatron-LM has two grids: one without ep, whose dp is all data streams, and
    one without cp, whose dp is the copies of an expert.
    """
    rng = random.Random(seed)
    ones = {"megatron-tp-pp-dp": {"ep": 1, "cp": 1}, "deepspeed": {"cp": 1}}
    plan = any_plan(rng, **(ones.get(order) or rng.choice(({"ep": 1}, {"cp": 1}))))
    device = [rank.device for rank in rank_map(plan, order).ranks]
    stages, k, blocks = len(plan.stages), plan.configurations[0], plan.placement().device_map
    last = {"pp": stages}
    dense = {"tp": k.tp, "cp": k.cp, "dp": k.ep * plan.dp}
    expert = {"tp": k.tp, "ep": k.ep, "dp": k.cp * plan.dp}
    if order == "megatron-tp-pp-dp":
        dense = {"tp": k.tp, "cp": k.cp, **last, "dp": k.ep * plan.dp}
        expert = {"tp": k.tp, "ep": k.ep, **last, "dp": k.cp * plan.dp}
    dense, expert = {**dense, **last}, {**expert, **last}

    def formed(sizes: dict[str, int], *varying: str) -> set[tuple[int, ...]]:
        return {tuple(device[rank] for rank in group) for group in grid_groups(sizes, varying)}

    def sets(groups: set[tuple[int, ...]]) -> set[frozenset[int]]:
        return set(map(frozenset, groups))

    every = list(product(range(plan.dp), range(stages)))
    inside = {
        kind: {g for r, s in every for g in block_groups(blocks.block(r, s), k, kind)}
        for kind in GROUPS
    }
    assert formed(dense, "tp") == inside["tp"]
    assert formed(dense, "cp") == inside["cp"]
    pipelines = {
        tuple(blocks.block(r, s)[place] for s in range(stages))
        for r in range(plan.dp)
        for place in range(k.block_size)
    }
    assert formed(dense, "pp") == pipelines
    ranks = range(k.block_size)
    copies = {
        name: {
            frozenset(sync_group(blocks, k, name, stage, rank))
            for stage in range(stages)
            for rank in ranks
        }
        for name in ("dense", "expert")
    }
    assert sets(formed(dense, "cp", "dp")) == copies["dense"]
    assert formed(expert, "ep") == inside["ep"]
    assert sets(formed(expert, "dp")) == copies["expert"]
    # What Megatron-LM itself checks of its two grids.
    assert formed(expert, "pp") == pipelines


def test_the_order_says_which_dimension_is_fastest() -> None:
    """Two replicas of two stages of one device: stages last, or replicas last."""
    plan = any_plan(random.Random(0), tp=1, cp=1, ep=1, dp=2, pp=2, order="pp-inner")
    megatron = [(rank.replica, rank.stage) for rank in rank_map(plan).ranks]
    assert megatron == [(0, 0), (1, 0), (0, 1), (1, 1)]
    other = [(rank.replica, rank.stage) for rank in rank_map(plan, "megatron-tp-pp-dp").ranks]
    assert other == [(0, 0), (0, 1), (1, 0), (1, 1)]


def two_by_two(order: str = "pp-inner", devices: Any = None) -> Plan:
    """Return two replicas of two stages of one device, on listed devices if given."""
    return Plan(
        problem=sample(layers=2, sizes=(4, 2)),
        microbatch=1,
        tp=1,
        dp=2,
        order="listed" if devices else order,
        pitch=None if devices else 2,
        stages=tuple(
            PlanStage(
                layers=(f"layer-{stage}",),
                recompute="none",
                devices=devices and tuple((device,) for device in devices[stage]),
            )
            for stage in range(2)
        ),
    )


def test_files_say_the_same_as_the_map() -> None:
    """Devices used out of order: each file as it stands, worked out by hand."""
    found = rank_map(two_by_two(devices=[[2, 0], [7, 4]]), hosts=["a", "b"])
    assert hostfile(found) == (
        "# a: CUDA_VISIBLE_DEVICES=2,0\na slots=2\n# b: CUDA_VISIBLE_DEVICES=3,0\nb slots=2\n"
    )
    assert slurm_hostfile(found) == "a\na\nb\nb\n"
    assert rankfile(found) == (
        "rank 0=a slot=2\nrank 1=a slot=0\nrank 2=b slot=3\nrank 3=b slot=0\n"
    )
    assert RANK_FILES["visible-devices"](found) == "a 2,0\nb 3,0\n"


@pytest.mark.parametrize("kind", ["rails", "dragonfly"])
def test_hosts_of_a_shape_are_counted_by_its_own_devices(kind: str) -> None:
    """An order for the planner moves no device to another host: plan device 0 is the last one."""
    network = {"rails": RAILS, "dragonfly": DRAGONFLY}[kind]
    names = device_names(on(network).cluster)
    plan = two_by_two(devices=[[0, 1], [2, 3]])
    halves = [tuple(f"layer-{number}" for number in range(at, at + 3)) for at in (0, 3)]
    stages = [
        stage.model_copy(update={"layers": layers})
        for stage, layers in zip(plan.stages, halves, strict=True)
    ]
    problem = on({**network, "order": names[::-1]})
    plan = plan.model_copy(update={"problem": problem, "stages": tuple(stages)})
    found = rank_map(plan, "tp-cp-ep-pp-dp")
    assert [rank.device_name for rank in found.ranks] == [names[place] for place in (7, 5, 6, 4)]
    assert [rank.host for rank in found.ranks] == ["host-3", "host-2", "host-3", "host-2"]
    assert [rank.local_device for rank in found.ranks] == [1, 1, 0, 0]


def test_a_hostfile_needs_the_ranks_of_a_host_to_follow_each_other() -> None:
    """Launchers fill hosts one after the other: another map is refused, and its remedy works."""
    plan = two_by_two()
    with pytest.raises(PlanError, match=r"ranks 0 and 2 on host-0.*tp-cp-ep-pp-dp"):
        hostfile(rank_map(plan, devices_per_host=2))
    assert hostfile(rank_map(plan, "tp-cp-ep-pp-dp", devices_per_host=2)) == (
        "host-0 slots=2\nhost-1 slots=2\n"
    )


def test_json_is_that_of_the_schema_and_reads_back() -> None:
    """The file keeps the schema, and the entity reads it back."""
    found = rank_map(any_plan(random.Random(3)))
    data = json.loads(json_text(found))
    jsonschema.Draft202012Validator(file_schema("rank-map")).validate(data)
    assert RankMap.model_validate_json(json_text(found)) == found


REFUSED = {
    "an order that is none": ({"order": "tp-pp"}, r"'tp-pp'.*tp-cp-ep-dp-pp"),
    "too few hosts": ({"hosts": ["a"], "devices_per_host": 2}, r"found 1 names, 2 are needed"),
    "a host twice": ({"hosts": ["a", "a"]}, r"'a' twice"),
    "a name that breaks lines": ({"hosts": ["a\nb"]}, r"letters, digits"),
    "no devices on a host": ({"devices_per_host": 0}, r"devices_per_host: found 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_caller_gets_wrong_is_refused_by_name(case: str) -> None:
    """Orders, hosts and devices per host that cannot be meant."""
    given, message = REFUSED[case]
    with pytest.raises(PlanError, match=message):
        rank_map(two_by_two(), **given)


@pytest.mark.parametrize(
    ("order", "degrees", "message"),
    [
        ("megatron", {"cp": 2, "ep": 2}, r"cp, ep: found 2 and 2.*Megatron-LM"),
        ("torchtitan", {"cp": 2, "ep": 2}, r"torchtitan"),
        ("megatron-tp-pp-dp", {"cp": 1, "ep": 2, "pp": 2}, r"ep: found 2, 1 is needed"),
        ("megatron-tp-pp-dp", {"cp": 2, "ep": 1, "pp": 2}, r"cp: found 2, 1 is needed"),
        ("deepspeed", {"cp": 2, "ep": 1}, r"cp: found 2, 1 is needed by DeepSpeed"),
        ("megatron", {"cp": 1, "ep": 1, "staged": True, "pp": 3}, r"stages: found tp .*, .*one"),
    ],
)
def test_a_runtime_refuses_groups_that_it_cannot_form(
    order: str, degrees: dict[str, Any], message: str
) -> None:
    """By name, and the bare order that the message names numbers the plan all the same."""
    plan = any_plan(random.Random(4), **degrees)
    with pytest.raises(PlanError, match=message) as error:
        rank_map(plan, order)
    bare = str(error.value).split("the bare order ")[1].split(",")[0]
    assert len(rank_map(plan, bare).ranks) == plan.placement().device_map.devices_used


def test_devices_that_overlap_or_do_not_exist_are_refused() -> None:
    """A plan that cannot be launched at all has no ranks."""
    with pytest.raises(PlanError, match="device 3 in two blocks"):
        rank_map(two_by_two(devices=[[3, 0], [3, 4]]))
    with pytest.raises(PlanError, match=r"device 9 in use.*0 to 7 exist"):
        rank_map(two_by_two(devices=[[9, 0], [3, 4]]))


def test_a_graph_without_hosts_in_its_names_is_refused_until_they_are_said() -> None:
    """Levels that are not known say nothing of hosts; a number of devices per host does."""
    problem = problem_data(layers=2, sizes=(8,))
    link = {"bandwidth_bytes_per_s": 10**9, "latency_s": 1e-6, "target": "switch"}
    problem["cluster"]["network"] = {
        "type": "graph",
        "devices": [f"gpu{n}" for n in range(8)],
        "switches": ["switch"],
        "links": [{"source": f"gpu{n}", **link} for n in range(8)],
    }
    plan = two_by_two().model_copy(update={"problem": build(Problem, problem, "graph")})
    with pytest.raises(PlanError, match=r"devices_per_host: found none for a graph"):
        rank_map(plan)
    found = rank_map(plan, devices_per_host=2)
    assert [rank.device_name for rank in found.ranks] == ["gpu0", "gpu2", "gpu1", "gpu3"]
    assert [rank.host for rank in found.ranks] == ["host-0", "host-1", "host-0", "host-1"]


def test_hosts_are_read_from_lines_and_lists() -> None:
    """Slurm's lists, comments and empty lines; a line of a hostfile is refused by its number."""
    assert parse_hosts("# ours\nnode[08-10],login\n\nspare\n") == (
        *("node08", "node09", "node10", "login", "spare"),
    )
    with pytest.raises(InstanceError, match=r"line 2: found 'b slots=8'"):
        parse_hosts("a\nb slots=8\n")
    with pytest.raises(InstanceError, match="at most"):
        parse_hosts("a[0-999999999]")


def test_command_writes_each_format(tmp_path: Path) -> None:
    """Standard output and -o hold the same; --json has the map whatever the format."""
    plan = tmp_path / "plan.json"
    plan.write_text(to_json_text(two_by_two("dp-inner")))
    names = tmp_path / "hosts"
    names.write_text("left\nright\n")
    for name, text in RANK_FILES.items():
        expected = text(rank_map(two_by_two("dp-inner"), hosts=["left"]))
        output = tmp_path / name
        options = ("export", "ranks", plan, "--format", name, "--hosts", names)
        assert run(*options).stdout == expected
        assert "4 ranks on 1 host" in run(*options, "-o", output).stdout
        assert output.read_text() == expected
        assert len(run_json(*options)["rank_map"]["ranks"]) == 4
    assert "left" in run("export", "ranks", plan, "--hosts", "left,right").stdout


def test_command_refuses_by_exit_code(tmp_path: Path) -> None:
    """A table into a file, a file of hosts that is not there, a plan of a placement graph."""
    plan = tmp_path / "plan.json"
    plan.write_text(to_json_text(two_by_two()))
    for options, message in (
        (("-o", tmp_path / "x"), "add --format"),
        (("--hosts", tmp_path / "none"), "cannot be read"),
        (("--order", "tp"), "order: found 'tp'"),
    ):
        result = run("export", "ranks", plan, *options)
        assert (result.exit_code, message in result.stderr.replace("\n", " ")) == (2, True)


def test_a_long_table_is_cut(tmp_path: Path) -> None:
    """A table shows so many ranks, and counts the others."""
    plan = tmp_path / "plan.json"
    big = sample(layers=2, sizes=(8, 16))
    stage = PlanStage(layers=("layer-0", "layer-1"), recompute="none")
    whole = Plan(
        problem=big, microbatch=1, tp=1, dp=100, order="pp-inner", pitch=1, stages=(stage,)
    )
    plan.write_text(to_json_text(whole))
    printed = run("export", "ranks", plan).stdout
    assert f"and {100 - SHOWN_RANKS} more ranks" in printed
    assert len(printed.splitlines()) < SHOWN_RANKS + 8


def test_the_package_exports_the_function() -> None:
    """`nest_opt.rank_map` is the function, and a placement graph's plan is refused."""
    assert nest_opt.rank_map is rank_map
    assert isinstance(nest_opt.rank_map(two_by_two()), nest_opt.RankMap)
