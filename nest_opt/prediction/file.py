"""The file of a run: the fields of `RunConfiguration`, a model by its dimensions if need be."""

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Precision
from nest_opt.models.families import gpt, llama
from nest_opt.models.share import Attention, ContextParallel
from nest_opt.models.spec import MAX_BLOCKS, MAX_DIMENSION, MoeSpec, TransformerSpec
from nest_opt.prediction.run import RunConfiguration, RunOrder
from nest_opt.problem.base import OBJECT, TEXT, Exact, Flag, Frozen, Positive
from nest_opt.problem.files import require_version
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import ScheduleName
from nest_opt.problem.validation import build, read_json

FORMAT = "nest-opt-run"
# The section on `predict` has the fields.
_PAGE = "docs/cli.md"

_Size = Annotated[int, Field(strict=True, ge=1, le=MAX_DIMENSION)]
_Blocks = Annotated[int, Field(strict=True, ge=0, le=MAX_BLOCKS)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_StageLayers = Annotated[tuple[_Blocks, ...], Field(min_length=1, max_length=MAX_BLOCKS)]
_Factor = Annotated[Exact, Field(ge=1, le=100)]


class ModelDimensions(Frozen):
    """A model by its dimensions, in the manner of GPT or, with a gated MLP, of Llama.

    `ffn` is 4 times `hidden` where it is open, `kv_heads` is `heads`. `positions`
    are rows of a learned position embedding, which GPT has: the sequence length
    where they are open, 0 for rotary ones and the like. With `experts`, each of
    width `expert_ffn`, a token visits `top_k` of them in every block.
    """

    name: _Name = "model"
    layers: _Size
    hidden: _Size
    heads: _Size
    kv_heads: _Size | None = None
    ffn: _Size | None = None
    vocabulary: _Size
    gated: Flag = False
    tied: Flag | None = None
    positions: Annotated[int, Field(strict=True, ge=0, le=MAX_DIMENSION)] | None = None
    embedding_norm: Flag = False
    experts: _Size | None = None
    top_k: _Size | None = None
    expert_ffn: _Size | None = None

    def spec(self, sequence_length: int) -> TransformerSpec:
        """Return the specification of a model trained on sequences of this length.

        Raises
        ------
        InstanceError
            If the dimensions contradict each other.
        """
        width = 4 * self.hidden if self.ffn is None else self.ffn
        if not self.gated:
            return self._gpt(width, sequence_length)
        for item in ("positions", "embedding_norm"):
            if getattr(self, item):
                raise InstanceError(
                    f"model.{item}: found {json.dumps(getattr(self, item))} with a gated MLP, "
                    "which models in the manner of Llama do not have beside it: leave it out, or "
                    "set gated to false"
                )
        return llama(
            self.name,
            source="its dimensions",
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            ffn=width,
            vocabulary=self.vocabulary,
            sequence_length=sequence_length,
            tied=bool(self.tied),
            moe=self._experts(width),
        )

    def _experts(self, width: int) -> MoeSpec | None:
        if self.experts is None:
            for item in ("top_k", "expert_ffn"):
                if getattr(self, item) is not None:
                    raise InstanceError(
                        f"model.{item}: found {getattr(self, item)} without experts, their number "
                        "is needed: add experts, or leave it out"
                    )
            return None
        return MoeSpec(
            experts=self.experts, top_k=self.top_k or 1, expert_ffn=self.expert_ffn or width
        )

    def _gpt(self, width: int, sequence_length: int) -> TransformerSpec:
        only = {"kv_heads": self.kv_heads not in (None, self.heads), "experts": self.experts}
        for item, found in only.items():
            if found:
                raise InstanceError(
                    f"model.{item}: found {getattr(self, item)} without a gated MLP, which models "
                    "in the manner of GPT do not have: set gated to true, or name a config.json"
                )
        return gpt(
            self.name,
            source="its dimensions",
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            ffn=width,
            vocabulary=self.vocabulary,
            positions=sequence_length,
            position_rows=self.positions,
            tied=self.tied is None or self.tied,
            embedding_norm=self.embedding_norm,
        )


def _form(value: object) -> str:
    return OBJECT if isinstance(value, Mapping | ModelDimensions) else TEXT


# Which of the two forms a model has is no key of a file.
_Model = Annotated[
    Annotated[_Name, Tag(TEXT)] | Annotated[ModelDimensions, Tag(OBJECT)],
    Discriminator(_form),
]


class RunFile(Frozen):
    """A run, as a file carries it: see `RunConfiguration` for the fields."""

    format: Literal["nest-opt-run"] = "nest-opt-run"
    version: Literal[1] = 1
    model: _Model
    cluster: _Name
    devices: Positive
    accelerator: _Name | None = None
    global_batch: Positive
    sequence_length: Positive | None = None
    microbatch: Positive = 1
    tp: Positive = 1
    pp: Positive = 1
    dp: Positive | None = None
    cp: Positive = 1
    ep: Positive = 1
    virtual_stages: Positive = 1
    sequence_parallel: Flag = False
    recompute: Recompute = "none"
    zero: Annotated[int, Field(strict=True, ge=0, le=3)] = 0
    zero_instances: Positive = 1
    schedule: ScheduleName | None = None
    precision: Precision = "bf16"
    stage_layers: _StageLayers | None = None
    order: RunOrder = "dp-inner"
    runtime: Literal["megatron", "deepspeed", "torchtitan"] | None = None
    fused_loss: Flag = False
    bytes_per_parameter: Positive | None = None
    attention: Attention = "flash"
    context_parallel: ContextParallel = "ring"
    dropout: Flag | None = None
    capacity_factor: _Factor = Field(default=1, validate_default=True)
    expert_imbalance: _Factor = Field(default=1, validate_default=True)
    achievable: Flag = True

    def run(self) -> RunConfiguration:
        """Return the run.

        Raises
        ------
        InstanceError
            If the dimensions of its model contradict each other.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields}
        del values["format"], values["version"]
        for name in ("capacity_factor", "expert_imbalance"):
            values[name] = Fraction(values[name])
        if isinstance(self.model, ModelDimensions):
            if self.sequence_length is None:
                raise InstanceError(
                    "sequence_length: found nothing for a model by its dimensions, a number of "
                    "tokens is needed: add the field"
                )
            values["model"] = self.model.spec(self.sequence_length)
        return RunConfiguration(**values)


def read_run_data(path: Path) -> dict[str, Any]:
    """Return the data of a run's file, whose fields may be changed before they are checked.

    Raises
    ------
    InstanceError
        If the file cannot be read, or is not that of a run.
    """
    data: dict[str, Any] = read_json(path)
    if not isinstance(data, dict):
        # It says what was found instead.
        build(RunFile, data, str(path), page=_PAGE)
    found = data.get("format")
    if found != FORMAT:
        shown = json.dumps(found, default=str)[:40] if "format" in data else "nothing"
        raise InstanceError(
            f"{path}: format: found {shown}, a run is needed: write "
            f'"format": "{FORMAT}", "version": 1'
        )
    require_version(data, FORMAT, str(path))
    return data


def run_of(data: Mapping[str, Any], name: str) -> RunConfiguration:
    """Return the run that a file's data states, `name` standing for the file in errors.

    Raises
    ------
    InstanceError
        If a field is unknown, missing or wrong.
    """
    return build(RunFile, data, name, page=_PAGE).run()
