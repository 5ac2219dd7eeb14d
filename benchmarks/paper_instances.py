"""Write or check the instances of the paper's five models on three clusters.

    python benchmarks/paper_instances.py --write
    python benchmarks/paper_instances.py --check

Sequence lengths and the global batch of 4,096 sequences are those of the NEST
paper's artifact; network figures and device memories of its two clusters are
those of the artifact's inputs.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from nest_opt.models.request import Request, derive_problem
from nest_opt.problem.files import to_json_text

FOLDER = Path(__file__).resolve().parent.parent / "instances" / "paper"

SEQUENCE_LENGTHS = {
    "bert-large": 512,
    "llama-2-7b": 4096,
    "llama-3-70b": 4096,
    "gpt-3-175b": 2048,
    "mixtral-8x7b": 4096,
}
CLUSTERS = ("paper-h100-spineleaf", "paper-tpuv4-fattree", "dgx-h100")
DEVICES = (64, 128, 256, 512, 1024)
GLOBAL_BATCH = 4096


def instances() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of every instance."""
    for model, length in SEQUENCE_LENGTHS.items():
        for cluster in CLUSTERS:
            for devices in DEVICES:
                request = Request(
                    model=model,
                    cluster=cluster,
                    devices=devices,
                    global_batch=GLOBAL_BATCH,
                    sequence_length=length,
                )
                path = FOLDER / f"{model}-{cluster}-{devices}.json"
                yield path, to_json_text(derive_problem(request).problem)


def instance_command(instances: Callable[[], Iterator[tuple[Path, str]]]) -> click.Command:
    """Return the command that writes or checks files, given by their paths and texts."""

    @click.command()
    @click.option("--write", "write", flag_value=True, help="Write the files.")
    @click.option("--check", "write", flag_value=False, default=False, help="Compare the files.")
    def main(write: bool) -> None:
        """Write or check all instances."""
        different = []
        for path, text in instances():
            if write:
                path.write_text(text)
            elif not path.exists() or path.read_text() != text:
                different.append(path.name)
        if different:
            sys.exit(
                f"{len(different)} files differ from what the program derives: {different[0]} ..."
            )

    return main


if __name__ == "__main__":
    instance_command(instances)()
