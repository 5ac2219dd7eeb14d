"""A placement of a placement graph: which layers are on which device."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphStage:
    """The layers on one device.

    Attributes
    ----------
    device
        The device's number.
    layers
        Indices of its layers, sorted; one at least.
    """

    device: int
    layers: tuple[int, ...]


@dataclass(frozen=True)
class GraphPlacement:
    """The decisions of a placement graph's plan.

    Attributes
    ----------
    stages
        The devices in use. Of a contiguous split, in the order that its
        precedence asks for.
    """

    stages: tuple[GraphStage, ...]
