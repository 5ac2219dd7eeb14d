"""Family: one option for each stage, and its products with layers. Equation (24).

An option is a configuration and a recomputation mode; where tp and sp are the
same for all stages, the mode alone.
"""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients, Option
from nest_opt.milp.index_sets import layer_pairs
from nest_opt.milp.units import Units
from nest_opt.problem import Configuration


def add_options(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (24): sum over g of mode[i, g] = 1, and under[l, c, g] = a[l, c] * mode[i, g].

    c is a chunk of stage i, with one chunk a stage i itself. The product is
    linear as sum over g of under[l, c, g] = a[l, c] and under[l, c, g] <=
    mode[i, g]: an option that is not chosen has no layer, so the chosen one has
    them all. With one option there is nothing to choose.
    """
    chosen = [(i, o.label) for i, options in enumerate(k.options) if len(options) > 1
              for o in options]  # fmt: skip
    if not chosen:
        return
    stages = sorted({stage for stage, _ in chosen})
    labels = {stage: [label for i, label in chosen if i == stage] for stage in stages}
    pairs = [(layer, chunk) for layer, chunk in layer_pairs(k) if k.stage_of(chunk) in labels]
    products = [(*pair, label) for pair in pairs for label in labels[k.stage_of(pair[1])]]
    model.mode = pyo.Var(chosen, domain=pyo.Binary)
    model.under = pyo.Var(products, bounds=(0, 1))

    def one_mode_rule(model: Any, stage: int) -> Any:
        return sum(model.mode[stage, label] for label in labels[stage]) == 1

    def split_rule(model: Any, layer: int, chunk: int) -> Any:
        parts = (model.under[layer, chunk, label] for label in labels[k.stage_of(chunk)])
        return sum(parts) == model.a[layer, chunk]

    def chosen_rule(model: Any, layer: int, chunk: int, label: str) -> Any:
        return model.under[layer, chunk, label] <= model.mode[k.stage_of(chunk), label]

    model.one_mode = pyo.Constraint(stages, rule=one_mode_rule)
    model.split = pyo.Constraint(pairs, rule=split_rule)
    model.chosen = pyo.Constraint(products, rule=chosen_rule)


def under(model: Any, k: CellCoefficients, layer: int, chunk: int, option: Option) -> Any:
    """Return under[layer, chunk, option]: a[layer, chunk] where there is one option."""
    if len(k.options[k.stage_of(chunk)]) == 1:
        return model.a[layer, chunk]
    return model.under[layer, chunk, option.label]


def has_option(model: Any, k: CellCoefficients, stage: int, option: Option) -> Any:
    """Return mode[stage, option]: 1 where there is one option."""
    return 1 if len(k.options[stage]) == 1 else model.mode[stage, option.label]


def chosen(model: Any, k: CellCoefficients, stage: int, *among: Configuration) -> Any:
    """Return 1 if a stage has one of some configurations, else 0."""
    options = k.options[stage]
    mine = [option for option in options if option.configuration in among]
    if len(mine) == len(options):
        return 1
    return sum(model.mode[stage, option.label] for option in mine)


def layer_under(
    model: Any, k: CellCoefficients, layer: int, chunk: int, configuration: Configuration
) -> Any:
    """Return 1 if a layer is in a chunk whose stage has a configuration, else 0."""
    stage = k.stage_of(chunk)
    if k.configurations(stage) == (configuration,):
        return model.a[layer, chunk]
    return sum(
        model.under[layer, chunk, option.label]
        for option in k.options[stage]
        if option.configuration == configuration
    )
