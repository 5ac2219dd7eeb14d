"""A table of measured runs as CSV: what `nest-opt fit` reads.

A column `source` (who measured; a source counts once in a fit), a column `measured_s`
(iteration time in seconds), and columns named as the fields of a run's file
(`nest_opt.prediction.file.RunFile`); the dimensions of a model that the catalogue does not
have are `model.layers`, `model.hidden` and so on. An empty cell leaves the field out.
"""

import csv
import io
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.prediction.file import run_of
from nest_opt.prediction.fit import Measured
from nest_opt.prediction.run import RunConfiguration
from nest_opt.problem.validation import read_text

MAX_ROWS = 10_000
SOURCE, MEASURED = "source", "measured_s"
# Longest iteration in seconds: a month.
MAX_MEASURED_S = 30 * 86_400


def read_runs(path: Path) -> tuple[Measured[RunConfiguration], ...]:
    """Return the measured runs of a table.

    Raises
    ------
    InstanceError
        If the file cannot be read, a column is missing, or a row is wrong; the
        message names its line.
    """
    text = read_text(path, "keep the measured runs alone")
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        columns = reader.fieldnames or []
        for name in (SOURCE, MEASURED):
            if name not in columns:
                raise InstanceError(
                    f"{path}: found no column {name}, it is needed: add it to the first line"
                )
        return tuple(_rows(reader, path))
    except csv.Error as error:
        raise InstanceError(
            f"{path}: line {reader.line_num}: found no CSV ({error}): correct the line"
        ) from error


def _rows(reader: "csv.DictReader[str]", path: Path) -> Iterator[Measured[RunConfiguration]]:
    for count, row in enumerate(reader):
        where = f"{path}: line {reader.line_num}"
        if count == MAX_ROWS:
            raise InstanceError(f"{where}: found more than {MAX_ROWS} runs: leave some out")
        if None in row or None in row.values():
            raise InstanceError(
                f"{where}: found another number of cells than in the first line: correct the line"
            )
        source = row.pop(SOURCE)
        seconds = _seconds(row.pop(MEASURED), where)
        yield Measured(source, seconds, run_of(_data(row), where))


def _seconds(cell: str, where: str) -> float:
    try:
        seconds = Decimal(cell)
    except InvalidOperation:
        seconds = Decimal("NaN")
    if not (seconds.is_finite() and 0 < seconds <= MAX_MEASURED_S):
        raise InstanceError(
            f"{where}: {MEASURED}: found {cell[:40]!r}, seconds above 0 and at most "
            f"{MAX_MEASURED_S} are needed: correct the cell"
        )
    return float(seconds)


def _data(row: dict[str, str]) -> dict[str, Any]:
    """Return a row as the data of a run's file."""
    data: dict[str, Any] = {}
    model: dict[str, Any] = {}
    for name, cell in row.items():
        if cell:
            inside = name.removeprefix("model.")
            (data if inside == name else model)[inside] = _value(cell)
    if model:
        # A name beside dimensions is that of the model.
        data["model"] = {"name": data.pop("model", "model"), **model}
    return data


def _value(cell: str) -> Any:
    """Return a whole number, true, false or a list as what it says; all else as text."""
    if len(cell) > 20 and not cell.startswith("["):
        return cell
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    return found if isinstance(found, bool | int | list) else cell
