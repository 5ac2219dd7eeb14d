"""A violation: what is wrong with a plan, by how much, and what would mend it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Attributes
    ----------
    rule
        The constraint family: `memory`, `devices`, `batch`, `degrees`, or a constraint's type.
    found, allowed
        The item with its number, and the limit.
    remedy
        What would mend it.
    """

    rule: str
    found: str
    allowed: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: found {self.found}; {self.allowed}; {self.remedy}"
