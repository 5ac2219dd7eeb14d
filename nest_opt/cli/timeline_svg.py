"""A simulation's timeline as a picture: an SVG file with a row for each device."""

from collections.abc import Iterator

from nest_opt.cli.units import exact_seconds_text, time_text
from nest_opt.errors import ScheduleError
from nest_opt.simulate import Event, Simulation, Sync

# A browser still opens so many boxes, each with its words, in a few seconds.
MOST_EVENTS = 20_000
_LEFT, _WIDTH, _RIGHT = 90, 1200, 30
_TOP, _ROW, _BOX, _SYNC = 50, 32, 20, 5
# Boxes that are narrower have no number.
_LEAST_LABEL = 14
_TICKS = 8
# Okabe and Ito's colours, which the colour-blind tell apart.
_COLOURS = {"F": "#56b4e9", "B": "#009e73", "BW": "#009e73", "W": "#e69f00"}
_RECEIVE, _SYNCED = "#cc79a7", "#777777"


def timeline_svg(run: Simulation) -> str:
    """Return the picture: boxes are operations, with the number of their microbatch.

    The part of a box in which the device receives, and the syncs below the
    boxes, have colours of their own. Each has its name and times as its title.

    Raises
    ------
    ScheduleError
        If there are more than `MOST_EVENTS` operations, or none takes time.
    """
    events = sum(map(len, run.timelines))
    if events > MOST_EVENTS:
        raise ScheduleError(
            f"timeline: found {events:,} operations, at most {MOST_EVENTS:,} are drawn: write "
            "them to a .json file"
        )
    if run.iteration_ps == 0:
        raise ScheduleError(
            "timeline: found a batch of 0 s, more is needed to draw it: write it to a .json file"
        )
    width = _LEFT + _WIDTH + _RIGHT
    height = _TOP + _ROW * run.schedule.devices + 40
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *_heading(run),
            *_axis(run),
            *(line for device in range(run.schedule.devices) for line in _row(run, device)),
            "</svg>\n",
        )
    )


def _heading(run: Simulation) -> Iterator[str]:
    schedule = run.schedule
    yield (
        f'<text x="{_LEFT}" y="16" font-size="13">{schedule.name}: {schedule.devices} devices, '
        f"{schedule.rounds} microbatches, {exact_seconds_text(run.iteration_ps)} a batch, bubble "
        f"{run.bubble_share:.1%}</text>"
    )
    split = any(event.kind == "W" for event in run.timelines[0])
    names = {
        "forward": _COLOURS["F"],
        "backward: input" if split else "backward": _COLOURS["B"],
        **({"backward: weights": _COLOURS["W"]} if split else {}),
        "receive": _RECEIVE,
        "gradient sync": _SYNCED,
    }
    for place, (name, colour) in enumerate(names.items()):
        x = _LEFT + 150 * place
        yield f'<rect x="{x}" y="26" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 15}" y="35">{name}</text>'


def _axis(run: Simulation) -> Iterator[str]:
    """Yield a line, and its time, at each of a few round times."""
    step = 10 ** (len(str(run.iteration_ps)) - 1)
    step = next(s for s in (step // 10, step // 5, step // 2, step, 2 * step) if _few(run, s))
    bottom = _TOP + _ROW * run.schedule.devices
    for time in range(0, run.iteration_ps + 1, step):
        x = _x(run, time)
        yield f'<path d="M{x} {_TOP - 5}V{bottom}" stroke="#dddddd"/>'
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{time_text(time)}</text>'


def _few(run: Simulation, step_ps: int) -> bool:
    return step_ps > 0 and run.iteration_ps // step_ps <= _TICKS


def _row(run: Simulation, device: int) -> Iterator[str]:
    y = _TOP + _ROW * device
    yield f'<text x="{_LEFT - 10}" y="{y + 14}" text-anchor="end">device {device}</text>'
    for event in run.timelines[device]:
        yield from _box(run, event, y)
    for sync in run.syncs[device]:
        if sync.end_ps > sync.start_ps:
            yield _rectangle(
                run,
                sync,
                y + _BOX + 1,
                _SYNC,
                _SYNCED,
                _title(f"sync of chunk {sync.chunk}", sync),
            )


def _box(run: Simulation, event: Event, y: int) -> Iterator[str]:
    name = f"{event.kind} of microbatch {event.microbatch}, chunk {event.chunk}"
    title = _title(name, event)
    yield _rectangle(run, event, y, _BOX, _COLOURS[event.kind], title)
    if event.receive_ps:
        received = event._replace(end_ps=event.start_ps + event.receive_ps)
        yield _rectangle(run, received, y, _BOX, _RECEIVE, _title(f"receive for {name}", received))
    left, right = _x(run, event.start_ps + event.receive_ps), _x(run, event.end_ps)
    if right - left >= _LEAST_LABEL:
        middle = round((left + right) / 2, 2)
        yield (
            f'<text x="{middle}" y="{y + 14}" text-anchor="middle" pointer-events="none">'
            f"{event.microbatch}</text>"
        )


def _rectangle(
    run: Simulation, ran: Event | Sync, y: int, height: int, colour: str, title: str
) -> str:
    left = _x(run, ran.start_ps)
    width = round(_x(run, ran.end_ps) - left, 2)
    # A white edge would hide what is narrow.
    edge = ' stroke="white" stroke-width="0.5"' if width > 2 else ""
    # Later chunks are paler.
    paler = f' fill-opacity="{round(1 - ran.chunk / run.schedule.chunks / 1.5, 2)}"'
    return (
        f'<rect x="{left}" y="{y}" width="{width}" height="{height}" fill="{colour}"'
        f"{paler if ran.chunk else ''}{edge}><title>{title}</title></rect>"
    )


def _title(name: str, ran: Event | Sync) -> str:
    return f"{name}: {time_text(ran.start_ps)} to {time_text(ran.end_ps)}"


def _x(run: Simulation, time_ps: int) -> float:
    """Return the place of a time on the axis."""
    return round(_LEFT + _WIDTH * time_ps / run.iteration_ps, 2)
