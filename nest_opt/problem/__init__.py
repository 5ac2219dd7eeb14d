"""What is to be solved: layer graph, profiles, cluster, job, search space, constraints."""

from nest_opt.problem.cluster import Cluster, DeviceGroup, DeviceKind, HierarchicalSpec, LevelSpec
from nest_opt.problem.constraints import (
    AntiColocation,
    Colocation,
    Constraint,
    DegreeLimit,
    FailureDomains,
    ForbiddenBoundary,
    HopLatency,
    PinnedLayers,
    Power,
    TpInsideNode,
    UserConstraint,
    rule_of,
)
from nest_opt.problem.graph import LayerEntry, LayerGraph, LayerType
from nest_opt.problem.job import BytesPerParameter, Job
from nest_opt.problem.problem import Problem
from nest_opt.problem.profile import Collective, Configuration, Footprint, Profile
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.search import SearchSpace
from nest_opt.problem.zero import Zero

__all__ = [
    "AntiColocation",
    "BytesPerParameter",
    "Cluster",
    "Collective",
    "Colocation",
    "Configuration",
    "Constraint",
    "DegreeLimit",
    "DeviceGroup",
    "DeviceKind",
    "FailureDomains",
    "Footprint",
    "ForbiddenBoundary",
    "HierarchicalSpec",
    "HopLatency",
    "Job",
    "LayerEntry",
    "LayerGraph",
    "LayerType",
    "LevelSpec",
    "PinnedLayers",
    "Power",
    "Problem",
    "Profile",
    "Schedule",
    "SearchSpace",
    "TpInsideNode",
    "UserConstraint",
    "Zero",
    "rule_of",
]
