"""Times of collectives: algorithms as steps and bytes by level, their choice, and bounds."""

from nest_opt.network.collectives.bounds import Bound, lower_bound, torus_bound
from nest_opt.network.collectives.calibration import (
    Calibration,
    Measurement,
    calibrate,
    calibrate_together,
    constants,
    error_at,
    predict,
    relative_errors,
)
from nest_opt.network.collectives.choice import (
    Candidate,
    CollectiveTime,
    collective_time,
    torus_time,
    uneven_all_to_all_time,
)
from nest_opt.network.collectives.fabric import (
    ALGORITHMS,
    NCCL_ALGORITHMS,
    AlgorithmName,
    Fabric,
    Line,
    Link,
    Protocol,
)
from nest_opt.network.collectives.shape import COLLECTIVES, Collective, Shape, Spread
from nest_opt.network.collectives.torus import Torus, torus_shape

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "NCCL_ALGORITHMS",
    "AlgorithmName",
    "Bound",
    "Calibration",
    "Candidate",
    "Collective",
    "CollectiveTime",
    "Fabric",
    "Line",
    "Link",
    "Measurement",
    "Protocol",
    "Shape",
    "Spread",
    "Torus",
    "calibrate",
    "calibrate_together",
    "collective_time",
    "constants",
    "error_at",
    "lower_bound",
    "predict",
    "relative_errors",
    "torus_bound",
    "torus_shape",
    "torus_time",
    "uneven_all_to_all_time",
]
