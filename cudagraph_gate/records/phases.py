"""The phases of a trial, and what its records are told apart by."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

PathName = Literal["normal", "graph", "replay", "copy_in"]
Method = Literal["capture", "explicit", "own"]
"""How the graph path is made: captured from the step, by ``build_explicit``, or by ``build_graphed``."""


class Phase(StrEnum):
    """Phases of one shape's trial, in order; those after ``destroy`` have workers of their own."""

    BUILD = "build"
    COLD_REQUEST = "cold_request"
    WARM_UP = "warm_up"
    EXPECTED = "expected"
    CAPTURE = "capture"
    INSTANTIATE = "instantiate"
    UPLOAD = "upload"
    FIRST_REPLAY = "first_replay"
    STEADY_REPLAY = "steady_replay"
    UPDATE = "update"
    REINSTANTIATE = "reinstantiate"
    TRAJECTORY = "trajectory"
    NORMAL_AGAIN = "normal_again"
    TIMING = "timing"
    WHOLE_REQUEST = "whole_request"
    UPDATE_CURVE = "update_curve"
    KERNELS = "kernels"
    DESTROY = "destroy"
    INSTANCES = "instances"
    CONCURRENCY = "concurrency"
    MEMORY = "memory"
    TRAFFIC = "traffic"
    SCENARIO = "scenario"


RUNG_PHASES: Final = frozenset({Phase.INSTANCES, Phase.CONCURRENCY, Phase.MEMORY, Phase.TRAFFIC})
"""Phases that workers of their own go through after the shapes were tried."""
