"""The event simulator of pipeline schedules, independent of the closed forms of `nest_opt.cost`."""

from nest_opt.simulate.memory import peak_in_flight, peak_stash_bytes
from nest_opt.simulate.schedule import (
    Operation,
    Schedule,
    gpipe,
    interleaved,
    one_f_one_b,
    zb_h1,
    zb_h2,
)
from nest_opt.simulate.simulator import (
    HOPS,
    SYNC_STARTS,
    Event,
    Hops,
    Simulation,
    StageTimes,
    Sync,
    SyncStart,
    simulate,
)

__all__ = [
    "HOPS",
    "SYNC_STARTS",
    "Event",
    "Hops",
    "Operation",
    "Schedule",
    "Simulation",
    "StageTimes",
    "Sync",
    "SyncStart",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "peak_in_flight",
    "peak_stash_bytes",
    "simulate",
    "zb_h1",
    "zb_h2",
]
