"""The least levels that groups, hops and copies can have on any device map."""

from nest_opt.cost.table import CLASSES
from nest_opt.dp.levels import Levels, LevelVectors
from nest_opt.network.spread import Spreads
from nest_opt.problem import Configuration
from nest_opt.problem.zero import NOT_SHARDED, Zero


class LeastLevels:
    """Least levels by configuration, from how far apart devices are at least.

    Parameters
    ----------
    spreads
        Those of the network, with its groups.
    """

    def __init__(self, spreads: Spreads) -> None:
        self._spreads = spreads
        self._vectors: dict[Configuration, LevelVectors] = {}
        self._groups: dict[Configuration, Levels] = {}

    def vectors(self, configuration: Configuration) -> LevelVectors:
        """Return the level vectors of a configuration, built once."""
        if configuration not in self._vectors:
            self._vectors[configuration] = LevelVectors(self._spreads, configuration)
        return self._vectors[configuration]

    def of_groups(self, configuration: Configuration) -> Levels:
        """Return the (tp, cp, ep, hop) levels.

        Two stages are at least a block apart, so no hop is on a lower level
        than one by a block.
        """
        if configuration not in self._groups:
            tp, cp, ep, _ = configuration
            spans = (tp - 1, tp * (cp - 1), tp * cp * (ep - 1), configuration.block_size)
            levels = tuple(map(self.vectors(configuration).level_of_span, spans))
            self._groups[configuration] = levels
        return self._groups[configuration]

    def around(self, configuration: Configuration, stages: int) -> int:
        """Return the level of a hop between the last and the first of S stages."""
        return self.vectors(configuration).level_of_span((stages - 1) * configuration.block_size)

    def of_copies(
        self, configuration: Configuration, replicas: int, zero: Zero = NOT_SHARDED
    ) -> Levels:
        """Return spreads that those of the copies are not better than: `LevelVectors.sync_sets`."""
        counts = copy_counts(configuration, replicas, zero)
        levels = self.copy_levels(configuration, replicas, zero)
        return tuple(map(self._spreads.best, counts, levels))

    def copy_levels(self, configuration: Configuration, replicas: int, zero: Zero) -> Levels:
        """Return the levels of the copies.

        Replicas are at least a block apart.
        """
        tp, cp, ep, _ = configuration
        level, a = self.vectors(configuration).level_of_span, configuration.block_size
        dense, expert = (replicas // zero.runs(name) for name in CLASSES)
        inside = (level((cp * ep * dense - 1) * tp), level((expert - 1) * a + (cp - 1) * tp))
        if zero.instances == 1:
            return inside
        return (*inside, level((replicas - dense) * a), level((replicas - expert) * a))


def copy_counts(configuration: Configuration, replicas: int, zero: Zero) -> tuple[int, ...]:
    """Return the numbers of copies, dense and expert: inside a run, then of runs if several."""
    _, cp, ep, _ = configuration
    dense, expert = (replicas // zero.runs(name) for name in CLASSES)
    between = () if zero.instances == 1 else (zero.runs("dense"), zero.runs("expert"))
    return (cp * ep * dense, cp * expert, *between)
