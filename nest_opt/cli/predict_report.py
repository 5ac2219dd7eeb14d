"""What `nest-opt predict` prints."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.cli.json_output import Object, degrees_json, time_json
from nest_opt.cli.stage_table import degree_facts, facts
from nest_opt.cli.units import bytes_text, count_text, number_text, percent_text, time_text
from nest_opt.improvement import batch_terms
from nest_opt.models.parameters import parameters
from nest_opt.prediction.build import recompute_mode
from nest_opt.prediction.predict import READINGS, FlopRate, Prediction, StageMemory


def prediction_json(prediction: Prediction) -> Object:
    """Return the object of a prediction."""
    derived, run = prediction.built.derived, prediction.run
    return {
        "status": "fits" if prediction.fits else "out-of-memory",
        "model": {"name": derived.spec.name, "parameters": parameters(derived.spec)},
        "cluster": derived.template.name,
        "accelerator": derived.accelerator.name,
        "devices": run.devices,
        "degrees": degrees_json(prediction.plan()),
        "precision": run.precision,
        "attention": derived.training.attention,
        "recompute": recompute_mode(run),
        "runtime": run.runtime,
        "global_batch": run.global_batch,
        "sequence_length": derived.training.sequence_length,
        "microbatches": prediction.evaluation.rounds,
        "iteration_is": "simulated" if prediction.simulation else "formula",
        **time_json("iteration", prediction.iteration_ps),
        **time_json("formula", prediction.formula_ps),
        "formula_terms_ps": {
            name: str(value) for name, value in batch_terms(prediction.evaluation).items()
        },
        **time_json("step", prediction.step_ps),
        "tokens_per_s": prediction.tokens_per_s,
        "tokens_per_s_device": prediction.tokens_per_s_device,
        "flops": [_rate_json(rate) for rate in prediction.rates],
        "bubble_share": prediction.bubble_share,
        **time_json("sync", prediction.sync_ps),
        **time_json("exposed_sync", prediction.exposed_sync_ps),
        "memory": {
            "peak_bytes": prediction.peak_bytes,
            "readings": {name: prediction.reading_bytes(name) for name in READINGS},
            "stages": [
                {
                    "stage": number,
                    "fits": stage.fits,
                    "used_bytes": stage.used_bytes,
                    "usable_bytes": stage.usable_bytes,
                    "terms_bytes": stage.terms_bytes,
                }
                for number, stage in enumerate(prediction.memory)
            ],
        },
    }


def _rate_json(rate: FlopRate) -> Object:
    return {
        "attention": rate.attention,
        "recomputation_counted": rate.recomputation,
        "flops_per_batch": str(rate.flops),
        "flops_per_s_device": rate.flops_per_s,
        "utilisation": rate.utilisation,
    }


def prediction_report(prediction: Prediction) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    yield facts(_facts(prediction))
    yield _rate_table(prediction.rates)
    yield _memory_table(prediction.memory)
    if not prediction.fits:
        short = [number for number, stage in enumerate(prediction.memory) if not stage.fits]
        worst = max(prediction.memory, key=lambda stage: stage.used_bytes)
        yield Text(
            f"out of memory: {count_text(len(short), 'stage')} (the first is stage {short[0]}) "
            f"would need up to {bytes_text(worst.used_bytes)} of the "
            f"{bytes_text(worst.usable_bytes)} that a device has; times are those of a run that "
            "had room",
            style="bold red",
        )


def _facts(prediction: Prediction) -> dict[str, str]:
    derived, plan = prediction.built.derived, prediction.plan()
    how = "the schedule run event by event" if prediction.simulation else "the closed form"
    readings = ", ".join(
        f"{bytes_text(prediction.reading_bytes(name))} {text}" for name, text in READINGS.items()
    )
    return {
        "model": f"{derived.spec.name}, {count_text(parameters(derived.spec), 'parameter')}, "
        f"sequences of {count_text(derived.training.sequence_length, 'token')}",
        "cluster": f"{count_text(prediction.run.devices, 'device')} "
        f"({derived.accelerator.name}) of {derived.template.name}",
        **{name: text for name, text in degree_facts(plan).items() if name != "devices"},
        "computed": f"{prediction.run.precision}, {derived.training.attention} attention, "
        f"recompute {recompute_mode(prediction.run)}; memory by the rules of "
        f"{prediction.run.runtime or 'no runtime in particular'}",
        "iteration": f"{time_text(prediction.iteration_ps)} ({how}; formula "
        f"{time_text(prediction.formula_ps)})",
        "formula": ", ".join(
            f"{name} {time_text(time_ps)}"
            for name, time_ps in batch_terms(prediction.evaluation).items()
            if time_ps
        ),
        "tokens": f"{number_text(prediction.tokens_per_s)} tokens/s, "
        f"{number_text(prediction.tokens_per_s_device)} tokens/s per device",
        "step": f"{time_text(prediction.step_ps)} of it for the optimizer",
        "bubble": f"{100 * prediction.bubble_share:.1f}% of the iteration",
        "sync": f"{time_text(prediction.sync_ps)} once a batch, of which "
        f"{time_text(prediction.exposed_sync_ps)} is not hidden",
        "peak": f"{readings}; {bytes_text(prediction.memory[0].usable_bytes)} usable",
    }


def _rate_table(rates: Sequence[FlopRate]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in ("FLOPs counted", "TFLOP/s per device", "of 16-bit peak"):
        table.add_column(name, justify="left" if name.startswith("FLOPs") else "right")
    for rate in rates:
        repeats = "with recomputation (HFU)" if rate.recomputation else "of the model (MFU)"
        share = "unknown" if rate.utilisation is None else f"{100 * rate.utilisation:.1f}%"
        table.add_row(
            f"{rate.attention} attention, {repeats}", number_text(rate.flops_per_s / 1e12), share
        )
    return table


def _memory_table(stages: Sequence[StageMemory]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    names = list(stages[0].terms_bytes)
    for name in ("stages", *names, "used", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for first, last, stage in _runs(stages):
        table.add_row(
            str(first) if first == last else f"{first}-{last}",
            *(bytes_text(stage.terms_bytes[name]) for name in names),
            bytes_text(stage.used_bytes),
            percent_text(stage.used_bytes, stage.usable_bytes),
        )
    return table


def _runs(stages: Sequence[StageMemory]) -> Iterator[tuple[int, int, StageMemory]]:
    """Yield (first, last, memory) of stages that follow each other with equal memory."""
    first = 0
    for number in range(1, len(stages) + 1):
        if number == len(stages) or stages[number] != stages[first]:
            yield first, number - 1, stages[first]
            first = number
