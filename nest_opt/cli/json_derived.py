"""The JSON objects of models, derived problems and smallest numbers of devices."""

from nest_opt.cli.explain import failure
from nest_opt.cli.json_output import Object, diagnosis_json
from nest_opt.cli.smallest import NothingFits, Smallest
from nest_opt.cli.smallest_report import below_failure
from nest_opt.models.cluster_template import ClusterTemplate
from nest_opt.models.parameters import (
    active_parameters,
    dense_parameters,
    expert_parameters,
    parameters,
)
from nest_opt.models.request import DerivedProblem
from nest_opt.models.spec import ModelSpec, TransformerSpec


def model_json(spec: ModelSpec) -> Object:
    """Return a model's parameters and main dimensions."""
    data: Object = {
        "name": spec.name,
        "family": spec.family,
        "source": spec.source,
        "parameters": parameters(spec),
        "dense_parameters": dense_parameters(spec),
        "expert_parameters": expert_parameters(spec),
        "active_parameters": active_parameters(spec),
        "blocks": spec.layers,
    }
    if isinstance(spec, TransformerSpec):
        data.update(
            hidden=spec.hidden,
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            vocabulary=spec.vocabulary,
            tied=spec.tied,
            experts=spec.moe.experts if spec.moe else 0,
            default_sequence_length=spec.sequence_length,
        )
    return data


def derived_json(derived: DerivedProblem) -> Object:
    """Return what a problem was derived from."""
    training, request, cluster = derived.training, derived.request, derived.problem.cluster
    return {
        "model": model_json(derived.spec),
        "training": {
            "sequence_length": training.sequence_length,
            "sequence_length_rule": derived.length_rule,
            "global_batch": request.global_batch,
            "microbatches": list(derived.problem.search.microbatch or ()),
            "bytes_per_parameter": request.bytes_per_parameter,
            "objective": request.objective,
            "attention": training.attention,
            "dropout": training.dropout,
            "cp": list(derived.problem.search.cp),
            "context_parallel": training.context_parallel,
            "capacity_factor": float(training.capacity),
            "expert_imbalance": float(training.imbalance),
        },
        "cluster": {
            "name": derived.template.name,
            "accelerator": derived.accelerator.name,
            "devices": cluster.device_count,
            "usable_bytes": cluster.device_kind.usable_bytes,
            "reserve_bytes": cluster.device_kind.reserve_bytes,
            "bandwidths": (
                "as given" if request.network else "achievable" if request.achievable else "peak"
            ),
        },
    }


def smallest_json(template: ClusterTemplate, found: Smallest | NothingFits) -> Object:
    """Return the smallest number of devices, and why nothing fits just below it."""
    if isinstance(found, NothingFits):
        return {
            "cluster": template.name,
            "devices": None,
            "below": {
                "devices": found.devices,
                "diagnosis": diagnosis_json(failure(found.result)),
                "error": None,
            },
        }
    why = below_failure(found)
    below = found.below and {
        "devices": found.below,
        "diagnosis": why and diagnosis_json(why),
        "error": found.below_error,
    }
    return {"cluster": template.name, "devices": found.devices, "below": below}
