"""Write or check the instances of networks of the catalogue's shapes.

    python benchmarks/network_instances.py --write
    python benchmarks/network_instances.py --check

Llama-3-70B with a global batch of 2,048 sequences on each.
"""

from collections.abc import Iterator
from pathlib import Path

from paper_instances import instance_command

from nest_opt.models.request import Request, derive_problem
from nest_opt.problem.files import to_json_text

FOLDER = Path(__file__).resolve().parent.parent / "instances" / "networks"

# Name of the instance: cluster of the catalogue, devices.
INSTANCES = {
    "dgx-superpod-4-units": ("dgx-h100-rails", 1024),
    "frontier-group": ("frontier", 1024),
    "llama3-two-pods": ("llama3-24k-tree", 6144),
    "nvl72-row": ("nvl72-64", 512),
    "tpuv4-slice-8x8x8": ("tpuv4-torus", 512),
}


def instances() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of every instance."""
    for name, (cluster, devices) in INSTANCES.items():
        request = Request(model="llama-3-70b", cluster=cluster, devices=devices, global_batch=2048)
        yield FOLDER / f"{name}.json", to_json_text(derive_problem(request).problem)


if __name__ == "__main__":
    instance_command(instances)()
