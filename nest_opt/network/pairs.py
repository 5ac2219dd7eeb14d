"""What is asked of a network device by device, whatever its shape."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Protocol

from nest_opt.network.flows import Flow
from nest_opt.network.protocol import Network


class PairNetwork(Protocol):
    """Times of transfers between given devices, alone and at once, in exact seconds."""

    @property
    def device_count(self) -> int:
        """Devices are numbered 0 to one less."""
        ...

    def transfer_s(self, source: int, target: int, size_bytes: Fraction | int) -> Fraction:
        """Return the seconds of one transfer while nothing else is under way."""
        ...

    def concurrent_s(self, flows: Iterable[Flow]) -> Fraction:
        """Return the seconds until the last of several transfers begun at once is over."""
        ...


class LevelPairs:
    """A network of levels asked device by device.

    Its levels give every device its own bandwidth, whatever the others do, so
    transfers at once take as long as the slowest of them alone.
    """

    def __init__(self, network: Network, device_count: int | None = None) -> None:
        self._network = network
        self._device_count = network.group_sizes[-1] if device_count is None else device_count

    @property
    def device_count(self) -> int:
        """Devices are numbered 0 to one less."""
        return self._device_count

    def transfer_s(self, source: int, target: int, size_bytes: Fraction | int) -> Fraction:
        """Return the time of a hop at the level of the two devices; nothing within one."""
        if source == target:
            return Fraction(0)
        level = self._network.level((source, target))
        return self._network.hop_s(Fraction(size_bytes), level)

    def concurrent_s(self, flows: Iterable[Flow]) -> Fraction:
        """Return the time of the slowest flow."""
        return max(
            (self.transfer_s(flow.source, flow.target, flow.size_bytes) for flow in flows),
            default=Fraction(0),
        )
