"""Local search on the devices of a plan, under the costs of a network of pairs.

From a plan, changes are tried in an order drawn from the seed, and the first
that lowers (value, guide) is kept: two devices exchanged (one may be idle), two
blocks exchanged, a run of stages reversed, the end of a stage moved by a layer. Where
none does, some devices are exchanged at random and the search goes on from
there (iterated local search: Lourenco, Martin and Stuetzle 2003). The best plan
seen is the answer, never worse than the one given.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from nest_opt.errors import PlanError
from nest_opt.network.pair_levels import PairLevels
from nest_opt.placing.moves import block_exchanges, exchanges, reversals, shifted_ends
from nest_opt.placing.state import State, state_of
from nest_opt.placing.value import Score, Valuer
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.placement import Placement

# States that are valued, unless asked for otherwise.
DEFAULT_EVALUATIONS = 4_000


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
        States that were valued.
    """

    placement: Placement
    evaluation: Evaluation
    start_ps: int
    evaluations: int

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
        States that are valued at most, about.
    seed
        Of the order of changes, and of those at random.

    Raises
    ------
    PlanError
        If the placement is illegal, or the costs are those of groups.
    """
    if not isinstance(costs.network, PairLevels):
        raise PlanError(
            "network: found levels of nested groups, costs of pairs are needed to improve devices: "
            "use pairwise_costs"
        )
    violations = check(costs, placement)
    if violations:
        raise PlanError(f"placement: it is illegal ({violations[0]}): start from a legal one")
    search = _Search(costs, costs.network, placement, evaluations, seed)
    try:
        search.run()
    except KeyboardInterrupt:
        pass
    best = search.best.listed()
    return ImprovedPlacement(
        best, evaluate(costs, best), search.start[0], search.valuer.evaluations
    )


class _Search:
    """One search."""

    def __init__(
        self, costs: Costs, network: PairLevels, placement: Placement, evaluations: int, seed: int
    ) -> None:
        self.valuer = Valuer(costs)
        self._sites = {
            device: number for number, site in enumerate(network.sites) for device in site
        }
        self._most = evaluations
        self._random = random.Random(seed)
        self.best = state_of(placement, network.device_count)
        self.start = self._score = self.valuer.score(self.best)

    def run(self) -> None:
        """Descend, and again from changed states while there are evaluations left."""
        if len(set(self._sites.values())) == 1 and self.best.placement.stages == 1:
            return
        state, score = self._descend(self.best, self._score)
        while self.valuer.evaluations < self._most:
            kicked = self._kicked(state)
            found, value = self._descend(kicked, self.valuer.score(kicked))
            # From equals too: values have plateaus.
            if value[0] <= score[0]:
                state, score = found, value

    def _descend(self, state: State, score: Score) -> tuple[State, Score]:
        """Take the first change that lowers the score, until none does."""
        improved = True
        while improved and self.valuer.evaluations < self._most:
            improved = False
            for changed in self._changes(state):
                found = self.valuer.score(changed)
                if found < score:
                    state, score, improved = changed, found, True
                    break
                if self.valuer.evaluations >= self._most:
                    break
        if score < self._score:
            self.best, self._score = state, score
        return state, score

    def _changes(self, state: State) -> Iterator[State]:
        """Yield every changed state, in an order at random."""
        moves = [
            *exchanges(state, self._sites),
            *block_exchanges(state),
            *reversals(state),
            *shifted_ends(state.placement),
        ]
        self._random.shuffle(moves)
        for move in moves:
            if isinstance(move, Placement):
                fitting = self.valuer.fitting(state, move)
                if fitting is not None:
                    yield fitting
            else:
                yield state.seated(move)

    def _kicked(self, state: State) -> State:
        """Return a state with a few devices exchanged at random."""
        devices, seats = list(state.devices), len(state.seats)
        for _ in range(self._random.randint(2, 4)):
            one, other = self._random.randrange(seats), self._random.randrange(len(devices))
            devices[one], devices[other] = devices[other], devices[one]
        return state.seated(devices)
