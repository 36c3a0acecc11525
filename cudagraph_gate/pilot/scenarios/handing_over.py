"""What a worker that is about to lose its device leaves in the run folder for the one that replaces it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cudagraph_gate.evidence import Run
from cudagraph_gate.model import Value
from cudagraph_gate.pilot.digests import digest
from cudagraph_gate.pilot.memory import settled_memory
from cudagraph_gate.pilot.scenarios.scene import Scene


class HandedOver(Value, frozen=True, kw_only=True):
    """How the first process stood before the fault."""

    outputs: str
    """SHA-256 of what the normal path's trajectory gave, bit by bit."""
    device_used_bytes: int
    """Of the whole device, that process's own context and arrays among them."""


def standing(scene: Scene) -> HandedOver:
    """How this process stands now."""
    memory = settled_memory(scene.session)
    return HandedOver(outputs=_outputs(scene), device_used_bytes=memory.device_used_bytes)


def forget(scene: Scene) -> None:
    """Remove what an earlier attack left: this one's fault may never come."""
    (Path(scene.job.folder) / _file(scene)).unlink(missing_ok=True)


def hand_over(scene: Scene) -> None:
    """Write down how this process stands, right before the fault: so far it has come."""
    with Run(Path(scene.job.folder)).replacing(_file(scene)) as temporary:
        temporary.write_bytes(msgspec.json.encode(standing(scene)) + b"\n")


def handed_over(scene: Scene) -> HandedOver | None:
    """What the lost process left; None: nothing that can be read."""
    try:
        left = (Path(scene.job.folder) / _file(scene)).read_bytes()
        return msgspec.json.decode(left, type=HandedOver)
    except (OSError, msgspec.MsgspecError):
        return None


def compared_with(scene: Scene, left: HandedOver) -> str:
    """A clause on whether this process's normal path gives what the lost one's gave."""
    if _outputs(scene) == left.outputs:
        return "its outputs are those of the lost one, bit by bit"
    return (
        "its normal path gives other outputs than the lost one's (unseeded weights do that), so the graph "
        "was compared within this process alone"
    )


def _file(scene: Scene) -> str:
    return f"scenario-{scene.job.scenario}.json"


def _outputs(scene: Scene) -> str:
    whole = hashlib.sha256()
    for moment in scene.expected.normal.moments:
        for name, leaf in sorted(moment.values().items()):
            whole.update(f"{name} {_digest(leaf)}\n".encode())
    return whole.hexdigest()


def _digest(leaf: Any) -> str:
    return digest(leaf) if isinstance(leaf, np.ndarray) else repr(leaf)
