"""A simulation's timeline as a JSON file: every event of every device, one a line."""

import json

from nest_opt.cli.json_output import Object, time_json
from nest_opt.simulate import Event, Simulation, Sync


def timeline_json(run: Simulation) -> str:
    """Return the text of the file, as `docs/cli.md` describes it."""
    head = {
        "format": "nest-opt-timeline",
        "version": 1,
        "schedule": run.schedule.name,
        "rounds": run.schedule.rounds,
        "chunks": run.schedule.chunks,
        "hops": run.hops,
        "sync": run.sync,
        **time_json("iteration", run.iteration_ps),
    }
    fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    devices = ",\n".join(_device_text(run, device) for device in range(run.schedule.devices))
    return "{\n" + ",\n".join([*fields, f'"devices": [\n{devices}\n]']) + "\n}\n"


def _device_text(run: Simulation, device: int) -> str:
    """Return a device as text; a million indented events would be ten times as many lines."""
    lists = (
        f'"{name}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]"
        for name, found in (
            ("events", map(_event, run.timelines[device])),
            ("syncs", map(_sync, run.syncs[device])),
        )
    )
    return f'{{"device": {device},\n' + ",\n".join(lists) + "}"


def _event(event: Event) -> Object:
    return {
        "kind": event.kind,
        "microbatch": event.microbatch,
        "chunk": event.chunk,
        **_span(event),
        "receive_ps": str(event.receive_ps),
    }


def _sync(sync: Sync) -> Object:
    return {"chunk": sync.chunk, **_span(sync)}


def _span(ran: Event | Sync) -> Object:
    return {"start_ps": str(ran.start_ps), "end_ps": str(ran.end_ps)}
