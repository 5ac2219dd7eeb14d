"""Pipeline schedules by name: in which order the devices of a pipeline run the microbatches."""

from typing import Literal, NamedTuple

ScheduleName = Literal["1f1b", "gpipe", "interleaved", "zb-h1"]
# In the order of ties.
SCHEDULES: tuple[ScheduleName, ...] = ("1f1b", "gpipe", "interleaved", "zb-h1")


class Schedule(NamedTuple):
    """A schedule and v, the chunks of layers that each stage has: 1 unless it is interleaved.

    Schedules compare in the order of ties: by name, then fewer chunks.
    """

    name: ScheduleName = "1f1b"
    chunks: int = 1

    @property
    def is_interleaved(self) -> bool:
        """Whether a stage has several chunks, apart in the order of layers."""
        return self.name == "interleaved"

    def __str__(self) -> str:
        return f"{self.name}, {self.chunks} chunks" if self.is_interleaved else self.name


ONE_F_ONE_B = Schedule()
