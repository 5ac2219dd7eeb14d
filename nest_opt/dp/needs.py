"""How much memory pipelines need at least, whatever their times; and whether one fits."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nest_opt.dp.chain import INFINITE, UNLIMITED, Array, extend_max, suffix_start
from nest_opt.dp.cuts import Held
from nest_opt.dp.source import CellSource, MemoryCase
from nest_opt.problem.schedule import Schedule


@dataclass
class _Suffix:
    """The last stages of a pipeline: the least bytes of their heaviest, from each cut on.

    Pipelines whose ends must hold the same layers, and hold as many stashes, share
    these, through `longer`.
    """

    need_bytes: Array
    longer: dict[tuple[int, Held], "_Suffix"] = field(default_factory=dict)


class Needs:
    """The least bytes of the heaviest stage, by case and number of stages, each found once."""

    def __init__(self, source: CellSource) -> None:
        self._source = source
        self._known: dict[object, tuple[Iterator[int], list[int]]] = {}
        self._chunked: dict[tuple[object, int], int] = {}

    def bound(self, case: MemoryCase, stages: int) -> int:
        """Return the least bytes if there were one round only: no stage holds fewer stashes.

        Cases of one microbatch size and configuration share it; equal chunks of a
        number of stages are as soon found as a bound on them.
        """
        if case.schedule.is_interleaved:
            return self.at(case, stages)
        return self.at(replace(case, rounds=1), stages)

    def at(self, case: MemoryCase, stages: int) -> int:
        """Return the least bytes of S stages; `INFINITE` if no such pipeline is legal."""
        # Of schedules but one, more rounds than layers hold no more stashes.
        most = case.rounds if case.schedule.name == "gpipe" else self._source.layers
        key = (
            case.microbatch,
            case.configuration,
            case.schedule,
            min(case.rounds, most),
            (case.zero, case.replicas) if case.zero else None,
        )
        if case.schedule.is_interleaved:
            return self._of_chunks(case, stages, key)
        if key not in self._known:
            self._known[key] = self._compute(case), []
        rest, found = self._known[key]
        while len(found) < stages:
            found.append(next(rest))
        return found[stages - 1]

    def _of_chunks(self, case: MemoryCase, stages: int, key: object) -> int:
        if (key, stages) not in self._chunked:
            found = None
            if self._source.held(stages) is not None:
                found = self._source.chunk_memory(case, stages)
            self._chunked[key, stages] = INFINITE if found is None else found[0]
        return self._chunked[key, stages]

    def _compute(self, case: MemoryCase) -> Iterator[int]:
        root = _Suffix(suffix_start(self._source.last_cut))
        for stages in range(1, self._source.layers + 1):
            held = self._source.held(stages)
            if held is None:
                yield INFINITE
                continue
            first, *others = zip(self._source.places(case, stages), held, strict=True)
            suffix = root
            for key in reversed(others):
                if key not in suffix.longer:
                    used = self._source.holding(self._source.memory(case, key[0]), key[1])
                    suffix.longer[key] = _Suffix(extend_max(used, suffix.need_bytes))
                suffix = suffix.longer[key]
            used = self._source.holding(self._source.memory(case, first[0]), first[1])
            yield int(extend_max(used[:1], suffix.need_bytes)[0])


def fits(source: CellSource, limit_bytes: int) -> bool:
    """Whether some legal placement on these devices needs at most so many bytes on each."""
    needs = Needs(source)
    of_schedule: dict[Schedule, list[int]] = {}
    for case in source.memory_cases():
        if case.schedule not in of_schedule:
            # Whatever the memory, it is a matter of the layers: one case speaks for all.
            every = range(1, source.layers + 1)
            of_schedule[case.schedule] = [
                stages for stages in every if needs.bound(case, stages) < INFINITE
            ]
        possible = of_schedule[case.schedule]
        if limit_bytes < UNLIMITED and least_bytes(source, case) > limit_bytes:
            continue
        roomy = possible
        if limit_bytes < UNLIMITED:
            roomy = [s for s in source.stages_with_room(case, limit_bytes) if s in possible]
        for stages in roomy:
            if stages > case.most_stages or not source.allows(case, stages):
                continue
            if limit_bytes == UNLIMITED or (
                needs.bound(case, stages) <= limit_bytes and needs.at(case, stages) <= limit_bytes
            ):
                return True
    return False


def least_bytes(source: CellSource, case: MemoryCase) -> int:
    """Return a lower bound on the bytes of the heaviest stage; `INFINITE` if there is no room."""
    if case.most_stages == 0:
        return INFINITE
    largest, states = source.memory_floor(case)
    return max(largest, states // case.most_stages)
