"""Local search on the devices of a plan, under the costs of a network of pairs.

From a plan, changes are tried in an order drawn from the seed, and each
that lowers (value, guide) is kept: two devices exchanged (one may be idle), two
blocks exchanged, a run of stages turned end for end; where none does, the end of a stage moved
by a layer. Where that does not help either, some devices are exchanged at random and the
search goes on from there (iterated local search: Lourenco, Martin and Stuetzle
2003). The best plan seen is the answer, never worse than the one given.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nest_opt.errors import ConsistencyError, PlanError
from nest_opt.network.pair_levels import PairLevels
from nest_opt.placing.moves import exchanges, shifted_ends
from nest_opt.placing.value import Score, Valued
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate, evaluate_stage, placement_cell
from nest_opt.plan.placement import Placement
from nest_opt.plan.progress import Progress
from nest_opt.problem.profile import Recompute

# Changes that are valued, unless asked for otherwise.
DEFAULT_EVALUATIONS = 10_000


@dataclass(frozen=True)
class ImprovedPlacement:
    """What a local search found.

    Attributes
    ----------
    placement, evaluation
        The best placement seen, its devices written out, and what it costs.
    start_ps
        The value of the placement that was given.
    evaluations
        Changes that were valued.
    interrupted
        Whether a KeyboardInterrupt ended the search.
    """

    placement: Placement
    evaluation: Evaluation
    start_ps: int
    evaluations: int
    interrupted: bool = False

    @property
    def value_ps(self) -> int:
        """The value of the best placement seen."""
        return self.evaluation.value_ps


def improve_placement(
    costs: Costs,
    placement: Placement,
    *,
    evaluations: int = DEFAULT_EVALUATIONS,
    seed: int = 0,
    progress: Progress | None = None,
) -> ImprovedPlacement:
    """Search for better devices and ends of stages for a legal plan; its degrees stay.

    The same in every run. A KeyboardInterrupt ends it with the best plan seen.

    Parameters
    ----------
    costs
        Costs of a network of pairs, see `pairwise_costs`.
    placement
        A legal placement, on the network's own device numbers: see `on_devices`.
    evaluations
        Changes that are valued at most.
    seed
        Of the order of changes, and of those at random.
    progress
        Called with (changes valued, changes, best value in ps) after each change; what it raises
        as a KeyboardInterrupt ends the search as well.

    Raises
    ------
    PlanError
        If the placement is illegal, or the costs are those of groups.
    ConsistencyError
        If the evaluator disagrees with the search: a defect.
    """
    if not isinstance(costs.network, PairLevels):
        raise PlanError(
            "network: found levels of nested groups, costs of pairs are needed to improve devices: "
            "use pairwise_costs"
        )
    violations = check(costs, placement)
    if violations:
        raise PlanError(f"placement: it is illegal ({violations[0]}): start from a legal one")
    search = _Search(costs, costs.network, placement, evaluations, seed, progress)
    interrupted = False
    try:
        search.run()
    except KeyboardInterrupt:
        interrupted = True
    evaluation = evaluate(costs, search.best)
    if evaluation.value_ps != search.score[0]:
        raise ConsistencyError(
            f"local search: it values a plan at {search.score[0]} ps, the evaluator at "
            f"{evaluation.value_ps} ps: please report this problem file"
        )
    return ImprovedPlacement(
        search.best, evaluation, search.start_ps, search.evaluations, interrupted
    )


class _Search:
    """One search: the best placement seen with its score, and how many were valued."""

    def __init__(
        self,
        costs: Costs,
        network: PairLevels,
        placement: Placement,
        most: int,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self._costs, self._network, self._most = costs, network, most
        self._progress = progress
        self._random = random.Random(seed)
        self.evaluations = 0
        self.best = placement
        valued = self._valued(placement, _in_order(placement, network.device_count))
        self._state, self.score = valued, valued.score()
        self.start_ps = self.score[0]
        self._moves = list(exchanges(placement, network.device_count))

    def run(self) -> None:
        """Descend, and again from changed devices while there are evaluations left."""
        score = self._descend(self.score)
        while self._moves and self.evaluations < self._most:
            before, kept = self._state, list(self._state.devices)
            found = self._descend(self._kick())
            # Equals are taken too: values have plateaus.
            if found[0] <= score[0]:
                score = found
            else:
                self._state = self._valued(before.placement, kept)

    def _valued(self, placement: Placement, devices: Sequence[int]) -> Valued:
        return Valued(self._costs, self._network, placement, devices)

    def _descend(self, score: Score) -> Score:
        """Take changes that lower the score until none does; return the score then."""
        while True:
            score = self._exchange(score)
            shifted = self._shift(score)
            if shifted is None:
                break
            score = shifted
        return score

    def _tell(self, found: Score) -> None:
        """Count a change that was valued; keep it at once, since the search may end here."""
        self.evaluations += 1
        if found < self.score:
            self.best, self.score = self._state.listed(), found
        if self._progress:
            self._progress(self.evaluations, self._most, self.score[0])

    def _exchange(self, score: Score) -> Score:
        """Take exchanges that lower the score until all were tried since the last one."""
        state, since = self._state, 0
        self._random.shuffle(self._moves)
        while since < len(self._moves):
            for move in self._moves:
                if since == len(self._moves) or self.evaluations >= self._most:
                    return score
                since += 1
                if self._is_idle(move):
                    continue
                state.exchange(move)
                found = state.score()
                self._tell(found)
                if found < score:
                    score, since = found, 0
                else:
                    state.exchange(move)
        return score

    def _is_idle(self, move: Sequence[tuple[int, int]]) -> bool:
        """Whether an exchange changes nothing, its devices being alike."""
        devices, site = self._state.devices, self._network.site_of
        return all(site[devices[one]] == site[devices[other]] for one, other in move)

    def _shift(self, score: Score) -> Score | None:
        """Move the first end of a stage that lowers the score; None if none does."""
        for moved in shifted_ends(self._state.placement):
            if self.evaluations >= self._most:
                return None
            placement = self._fitting(moved)
            if placement is None:
                continue
            before, self._state = self._state, self._valued(placement, self._state.devices)
            found = self._state.score()
            self._tell(found)
            if found < score:
                return found
            self._state = before
        return None

    def _fitting(self, placement: Placement) -> Placement | None:
        """Return a placement with the first mode that fits in each stage; None if it is illegal."""
        listed = self._state.listed(placement)
        costs, cell = (
            self._costs.ordered(listed.layer_order),
            placement_cell(self._costs.problem, listed),
        )
        modes: list[Recompute] = []
        for stage, intervals in enumerate(listed.intervals):
            pair = costs.table.pairs[cell.microbatch, cell.configurations[stage]]
            found = (evaluate_stage(costs, cell, stage, intervals, m) for m in pair.stash_bytes)
            fits = next((one for one in found if one.memory_bytes <= one.usable_bytes), None)
            if fits is None:
                return None
            modes.append(fits.recompute)
        listed = replace(listed, recompute=tuple(modes))
        return None if check(self._costs, listed) else listed

    def _kick(self) -> Score:
        """Exchange a few devices at random, and return the score."""
        state = self._state
        for _ in range(self._random.randint(2, 4)):
            one = self._random.randrange(state.seats)
            other = self._random.randrange(len(state.devices))
            if one != other:
                state.exchange([(one, other)])
        found = state.score()
        self._tell(found)
        return found


def _in_order(placement: Placement, device_count: int) -> list[int]:
    """Return the device of every seat, then those that are idle."""
    blocks = placement.device_map
    used = [
        device
        for stage in range(placement.stages)
        for replica in range(placement.replicas)
        for device in blocks.block(replica, stage)
    ]
    return [*used, *sorted(set(range(device_count)) - set(used))]
