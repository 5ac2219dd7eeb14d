"""What to change first of a configuration: single changes, each by a small search."""

from nest_opt.improvement.changes import Change, Configuration
from nest_opt.improvement.dimensions import DIMENSIONS, Dimension, Move
from nest_opt.improvement.given import Given
from nest_opt.improvement.terms import batch_terms
from nest_opt.improvement.walk import Improvement, improve

__all__ = [
    "DIMENSIONS",
    "Change",
    "Configuration",
    "Dimension",
    "Given",
    "Improvement",
    "Move",
    "batch_terms",
    "improve",
]
