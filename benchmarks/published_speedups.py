"""Throughputs that the NEST paper's artifact publishes, as multiples of the manual baseline's.

Typed from its repository (github.com/scai-tech/Nest, commit 3e163ad):
`scripts/tpuv4_fatTree/reference_results.md`, which has the figures 5 and 6 of the
paper as numbers, and experiment 3 of `README.md`, which has three rows of its
table 3. A dash is theirs: no plan, or not run.
"""

from typing import NamedTuple

METHODS = ("Manual", "MCMC", "Alpa-E", "Phaze", "NEST")


class Row(NamedTuple):
    """One row of a published table.

    Attributes
    ----------
    figure
        Of the paper: figure 5, figure 6 or table 3.
    setup, model, microbatch, devices
        As in the names of the artifact's inputs.
    speedups
        By method, as printed; None for a dash, and for a method that the table does not have.
    """

    figure: str
    setup: str
    model: str
    microbatch: int
    devices: int
    speedups: dict[str, str | None]

    @property
    def stem(self) -> str:
        """The name of the input."""
        return f"{self.setup}__{self.model}__mbs{self.microbatch}__{self.devices}"


# Devices, then Manual, MCMC, Alpa-E, Phaze, NEST.
_FIGURE_5 = {
    "bert": """
        64 1.00 0.55 0.42 1.35 1.35
        128 1.97 1.05 0.65 2.70 2.70
        256 3.84 0.99 0.85 5.40 5.40
        512 7.31 9.39 0.69 10.81 10.81
        1024 13.31 16.61 - 21.61 21.61""",
    "llama2": """
        64 1.00 0.62 1.25 1.04 1.25
        128 1.97 1.23 2.23 2.15 2.47
        256 3.84 3.19 2.40 4.20 4.81
        512 7.31 8.65 3.72 8.01 9.14
        1024 13.31 12.97 - 14.42 16.63""",
    "llama3": """
        64 - 1.01 - 1.01 1.01
        128 1.00 1.00 3.00 2.97 2.97
        256 2.89 2.89 5.23 5.77 5.77
        512 5.48 5.48 8.38 10.93 10.94
        1024 9.92 9.92 - 19.06 20.51""",
    "mixtral": """
        64 - 0.68 0.49 0.68 1.02
        128 1.00 1.00 0.88 1.33 2.00
        256 1.94 2.60 1.41 2.60 3.89
        512 3.68 3.68 1.83 4.92 7.38
        1024 6.63 6.63 - 8.90 13.35""",
    "gpt3": """
        64 - 0.57 - 0.57 0.67
        128 1.00 1.12 0.54 1.14 1.33
        256 1.99 1.59 1.23 2.27 2.65
        512 3.91 4.58 1.86 4.47 5.22
        1024 7.60 8.70 - 9.03 10.15""",
}
# Microbatch on 256 devices, then the same.
_FIGURE_6 = {
    "bert": """
        1 1.00 0.26 0.22 1.41 1.41
        2 0.95 0.11 0.21 1.41 1.41
        4 0.87 0.87 0.26 1.41 1.41
        8 0.73 0.24 0.39 1.41 1.41""",
    "llama2": """
        1 1.00 0.83 0.63 1.09 1.25
        2 - 0.62 0.90 1.62 1.83
        4 - - 1.17 - 2.25
        8 - - - - -""",
    "llama3": """
        1 1.00 1.00 1.81 2.00 2.00
        2 - - 1.96 3.37 3.37""",
}
# Model and devices, then Manual, MCMC, Phaze, NEST.
_TABLE_3 = """
    mixtral 1024 1.000 1.324 1.215 1.519
    mixtral 128 1.000 0.749 1.202 1.503
    gpt3 128 1.000 1.000 1.143 1.334"""


def _lines(table: str) -> list[list[str]]:
    return [line.split() for line in table.split("\n") if line.strip()]


def _speedups(cells: list[str], methods: tuple[str, ...] = METHODS) -> dict[str, str | None]:
    return {
        method: None if cell == "-" else cell for method, cell in zip(methods, cells, strict=True)
    }


def published() -> list[Row]:
    """Return every published row, in the order of the paper."""
    rows = [
        Row("figure 5", "tpuv4_fatTree", model, 1, int(devices), _speedups(cells))
        for model, table in _FIGURE_5.items()
        for devices, *cells in _lines(table)
    ]
    for model, table in _FIGURE_6.items():
        for size, *cells in _lines(table):
            setup = "tpuv4_fatTree" if size == "1" else f"tpuv4_fatTree_mbs{size}"
            rows.append(Row("figure 6", setup, model, int(size), 256, _speedups(cells)))
    methods = tuple(method for method in METHODS if method != "Alpa-E")
    rows += [
        Row("table 3", "h100_spineLeaf", model, 1, int(devices), _speedups(cells, methods))
        for model, devices, *cells in _lines(_TABLE_3)
    ]
    return rows
