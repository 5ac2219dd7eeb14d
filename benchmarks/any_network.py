"""Large networks planned whole: derive levels, solve, and time the plan on its links.

`python benchmarks/any_network.py` plans Llama-3-70B on each network in a
process of its own and prints CPU seconds a step, wall seconds and peak memory of
the process; `--only NAME` one of them; `--check` fails where a process takes
more than 20 s of CPU or 2 GB.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

from nest_opt import solve
from nest_opt.models.request import Request, derive_problem
from nest_opt.network import planned_levels
from nest_opt.problem import HierarchicalSpec
from nest_opt.problem.networks import DragonflySpec, NetworkSpec, TorusSpec
from nest_opt.problem.validation import build

ICI = {"bandwidth_bytes_per_s": 45e9, "latency_s": 1e-6}
PORT = {"bandwidth_bytes_per_s": 25e9, "latency_s": 1e-6}
MOST_CPU_S, MOST_BYTES = 20.0, 2e9


def _level(name: str, size: int, gb_per_s: float, us: float, ratio: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "size": size,
        "bandwidth_bytes_per_s": gb_per_s * 1e9,
        "latency_s": us * 1e-6,
        "oversubscription": ratio,
    }


# Accelerators, devices, and the network.
NETWORKS: dict[str, tuple[str, int, type[Any], dict[str, Any]]] = {
    "torus": ("tpuv4", 4096, TorusSpec, {"type": "torus", "axes": [{"size": 16, **ICI}] * 3}),
    "dragonfly": (
        "h100",
        10_000,
        DragonflySpec,
        {
            "type": "dragonfly",
            **{"groups": 50, "routers": 20, "devices": 10, "links_per_pair": 4},
            **{"device_link": PORT, "local_link": PORT, "global_link": PORT},
        },
    ),
    "tree": (
        "h100",
        32_768,
        HierarchicalSpec,
        {
            "type": "hierarchical",
            "levels": [
                _level("node", 8, 450, 3),
                _level("rack", 4, 50, 10),
                _level("pod", 64, 50, 14, 4),
                _level("core", 16, 50, 20, 7),
            ],
        },
    ),
}


def planned(name: str) -> dict[str, Any]:
    """Plan a network in this process and return its figures."""
    accelerator, devices, kind, data = NETWORKS[name]
    network: NetworkSpec = build(kind, data, name)
    clock = time.perf_counter()
    marks = [time.process_time()]

    def step() -> float:
        marks.append(time.process_time())
        return marks[-1] - marks[-2]

    request = Request(
        model="llama-3-70b",
        cluster="dgx-h100" if accelerator == "h100" else "tpuv4-pod",
        accelerator=accelerator,
        devices=8,
        global_batch=8192,
        network=network,
    )
    # Levels are needed to derive the problem, and are derived once.
    cluster_of = derive_problem(request).problem.cluster
    levels = planned_levels(cluster_of).levels
    found: dict[str, Any] = {
        "network": name,
        "devices": devices,
        "levels": [
            f"{level.size} at {float(level.bandwidth_bytes_per_s) / 1e9:g} GB/s" for level in levels
        ],
        "levels_cpu_s": step(),
    }
    whole = derive_problem(Request(**{**vars(request), "devices": devices})).problem
    found["problem_cpu_s"] = step()
    result = solve(whole, rank_by="links")
    found["solve_cpu_s"] = step()
    assert result.plan is not None
    assert result.links is not None
    first = result.links.first
    placement = result.plan.placement()
    found |= {
        "status": result.status,
        "value_s": first.evaluation.value_ps / 1e12,
        "on_network_s": first.links_ps / 1e12,
        "best_on_network_s": result.links.plans[0].links_ps / 1e12,
        "timed": len(result.links.plans),
        "plan": f"b {placement.microbatch}, tp {placement.configurations[0].tp}, "
        f"dp {placement.replicas}, pp {placement.stages}",
    }
    return found | {
        "cpu_s": time.process_time(),
        "wall_s": time.perf_counter() - clock,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _told(found: dict[str, Any]) -> str:
    steps = ", ".join(
        f"{name} {found[f'{name}_cpu_s']:.1f} s" for name in ("levels", "problem", "solve")
    )
    return (
        f"{found['network']}: {found['devices']:,} devices; CPU {found['cpu_s']:.1f} s ({steps}), "
        f"wall {found['wall_s']:.1f} s, peak {found['peak_bytes'] / 2**20:.0f} MiB\n"
        f"  levels {', '.join(found['levels'])}\n"
        f"  {found['status']}, the best by levels {found['value_s']:.3f} s by them, "
        f"{found['on_network_s']:.3f} s on its links; of {found['timed']} plans timed the best "
        f"there {found['best_on_network_s']:.3f} s: {found['plan']}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Plan the networks, each in its own process; return 1 where `--check` fails."""
    parser = argparse.ArgumentParser(prog="python benchmarks/any_network.py", description=__doc__)
    parser.add_argument("--only", choices=sorted(NETWORKS))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.json:
        print(json.dumps(planned(asked.only)))
        return 0
    slow = False
    for name in [asked.only] if asked.only else NETWORKS:
        command = [sys.executable, __file__, "--json", "--only", name]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        print(_told(found), flush=True)
        slow = slow or found["cpu_s"] > MOST_CPU_S or found["peak_bytes"] > MOST_BYTES
    return int(asked.check and slow)


if __name__ == "__main__":
    sys.exit(main())
