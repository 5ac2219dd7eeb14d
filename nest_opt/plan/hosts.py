"""Names of hosts: from a list that a user gives, or made up."""

import re
from collections.abc import Sequence

from nest_opt.errors import PlanError
from nest_opt.network.imports.host_list import host_list
from nest_opt.network.imports.text import cut, lines_of, refusal
from nest_opt.problem.base import first_repeated

# Letters, digits, dot, hyphen and underscore: nothing that a launcher's file reads otherwise.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", re.ASCII)


def parse_hosts(text: str, name: str = "hosts") -> tuple[str, ...]:
    """Return the names in a text: one a line, or lists such as `node[001-016],login`.

    Comments (#) and empty lines do not count; `name` stands for the text in errors.

    Raises
    ------
    InstanceError
        If a line is no name and no list; the message says which line.
    """
    found: list[str] = []
    for line, content in lines_of(text, name):
        if len(content.split()) > 1:
            raise refusal(
                name,
                line,
                f"found {cut(content)}, one name or list of names is needed: remove what follows "
                "it (slots are counted from the plan)",
            )
        found += host_list(content, name, line)
    return tuple(found)


def host_names(given: Sequence[str] | None, needed: int) -> tuple[str, ...]:
    """Return the names of so many hosts, in the order of device numbers.

    Raises
    ------
    PlanError
        If there are fewer names, one occurs twice, or one could not stand in a
        launcher's file.
    """
    if given is None:
        return tuple(f"host-{number}" for number in range(needed))
    if len(given) < needed:
        raise PlanError(
            f"hosts: found {len(given):,} names, {needed:,} are needed for the devices that the "
            "plan uses: add those that are missing, or change the devices per host"
        )
    repeated = first_repeated(given)
    if repeated is not None:
        raise PlanError(f"hosts: found {cut(repeated)} twice, 1 is allowed: remove one")
    wrong = next((host for host in given if not _NAME.fullmatch(host)), None)
    if wrong is not None:
        raise PlanError(
            f"hosts: found {cut(wrong)}, letters, digits, '.', '-' and '_' are needed, at most "
            "200 characters: correct it"
        )
    return tuple(given[:needed])
