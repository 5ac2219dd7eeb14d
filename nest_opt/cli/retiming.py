"""A plan timed on its own network: what `solve` and `verify` say of it."""

from fractions import Fraction

from nest_opt.api import LinkRanking
from nest_opt.cli.console import printable
from nest_opt.cli.json_output import Object, time_json
from nest_opt.cli.units import bytes_text, change_text, count_text, seconds_text, time_text
from nest_opt.cost.units import to_ps
from nest_opt.network import planned_levels
from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.plan import Plan
from nest_opt.plan.retime import Retiming, retime_plan
from nest_opt.problem import Cluster, HierarchicalSpec


def retiming_facts(plan: Plan, evaluation: Evaluation) -> dict[str, str]:
    """Return rows on a network's levels and the plan's times there; none of plain levels."""
    found = retime_plan(plan, evaluation)
    rows = {}
    network = plan.problem.cluster.network
    if not isinstance(network, HierarchicalSpec):
        rows["network"] = f"{network.type}, levels for {network.traffic}:\n" + "\n".join(
            _level_texts(plan.problem.cluster)
        )
    if found is not None:
        rows["on network"] = "\n".join(
            [
                f"{seconds_text(found.value_ps)} per batch with its own transfers on the links, "
                f"{_compared(found.planned_ps, found.value_ps)}",
                *(
                    f"{name}: {time_text(term.retimed_ps)}, by levels {time_text(term.planned_ps)}"
                    for name, term in found.terms.items()
                    if not _same(term.planned_ps, term.retimed_ps)
                ),
            ]
        )
    return rows


def link_ranking_facts(links: LinkRanking) -> dict[str, str]:
    """Return a row on how many plans were timed on the links, and what that gained."""
    best, first = links.plans[0], links.first
    searches = ", ".join(f"{count} for {name}" for name, count in links.searched.items())
    told = (
        f"{count_text(len(links.plans), 'plan')} timed on the links, of the best by levels "
        f"({searches})"
    )
    if best is first:
        return {"ranked": f"{told}: the best by levels is the best there"}
    return {
        "ranked": f"{told}: the best by levels takes {seconds_text(first.links_ps)} there "
        f"({seconds_text(first.evaluation.value_ps)} by levels), this one "
        f"{change_text(-links.gain)}, found by levels for {best.found_by}"
    }


def _ranking_json(links: LinkRanking) -> Object:
    best, first = links.plans[0], links.first
    return {
        "timed": len(links.plans),
        "searched": dict(links.searched),
        "found_by": best.found_by,
        **time_json("value", best.links_ps),
        "best_by_levels": {
            **time_json("value", first.links_ps),
            **time_json("planned", first.evaluation.value_ps),
        },
        "gain": links.gain,
    }


def _level_texts(cluster: Cluster) -> list[str]:
    devices, texts, most = 1, list[str](), cluster.network.device_count
    for level in planned_levels(cluster).levels:
        # Groups of the last levels may be more than there are devices for.
        devices = min(devices * level.size, most)
        rate, wait = int(level.bandwidth_bytes_per_s), to_ps(Fraction(level.latency_s))
        texts.append(
            f"{printable(level.name)}: {devices:,} devices, {bytes_text(rate)}/s, {time_text(wait)}"
        )
    return texts


def _same(planned_ps: int, retimed_ps: int) -> bool:
    """Whether two times differ by no more than what rounding does."""
    return abs(retimed_ps - planned_ps) * 10**6 <= planned_ps


def _compared(planned_ps: int, value_ps: int) -> str:
    if _same(planned_ps, value_ps):
        return "the same as by levels"
    change = change_text((value_ps - planned_ps) / planned_ps) if planned_ps else "more than none"
    return f"{change} against {seconds_text(planned_ps)} by levels"


def retiming_json(
    plan: Plan | None, evaluation: Evaluation | None, links: LinkRanking | None = None
) -> Object:
    """Return `network`, `on_network` and `link_ranking`, those that there are."""
    if plan is None or evaluation is None:
        return {}
    found = retime_plan(plan, evaluation)
    network = plan.problem.cluster.network
    data: Object = {}
    if not isinstance(network, HierarchicalSpec):
        data["network"] = {
            "type": network.type,
            "traffic": network.traffic,
            "levels": planned_levels(plan.problem.cluster).model_dump(mode="json")["levels"],
        }
    if found is not None:
        data["on_network"] = _json(found)
    if links is not None:
        data["link_ranking"] = _ranking_json(links)
    return data


def _json(found: Retiming) -> Object:
    return {
        **time_json("value", found.value_ps),
        **time_json("planned", found.planned_ps),
        "change": (
            (found.value_ps - found.planned_ps) / found.planned_ps if found.planned_ps else None
        ),
        "terms": [
            {
                "term": name,
                **time_json("planned", term.planned_ps),
                **time_json("on_network", term.retimed_ps),
            }
            for name, term in found.terms.items()
        ],
    }
