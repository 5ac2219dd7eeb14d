"""What `--fix` and `--runtime` make of a problem."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nest_opt.problem import Problem

# The names of nest_opt.models.runtimes.RUNTIMES, which help must not wait for.
RUNTIME_NAMES = ("megatron", "deepspeed", "torchtitan")

runtime_option: Callable[[Any], Any] = click.option(
    "--runtime",
    type=click.Choice(RUNTIME_NAMES),
    help="Keep to what this runtime launches (docs/runtimes.md).",
)


@dataclass(frozen=True)
class Narrowing:
    """Values of dimensions that are fixed, and the runtime to keep to."""

    fixes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    runtime: str | None = None

    def __call__(
        self,
        problem: "Problem",
        more: Mapping[str, tuple[Any, ...]] | None = None,
        option: str = "--fix",
    ) -> "Problem":
        """Return the problem narrowed; what `more` fixes replaces fixes of the same dimensions.

        Raises
        ------
        InstanceError
            If a value is illegal, or nothing is left of a dimension.
        """
        from nest_opt.cli.fix import fix

        fixed = fix(problem, {**self.fixes, **(more or {})}, option)
        if self.runtime is None:
            return fixed
        from nest_opt.models.runtimes import for_runtime

        return for_runtime(fixed, self.runtime)
