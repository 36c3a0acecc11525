"""``cgate doctor``: what this machine can measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from cudagraph_gate import fingerprint
from cudagraph_gate.model import Fingerprint
from cudagraph_gate.pilot.jobs import ProbeJob
from cudagraph_gate.pilot.worker import run_worker
from cudagraph_gate.pipeline.options import Options


@dataclass(frozen=True)
class Examination:
    """What ``cgate doctor`` found."""

    device: str
    simulated: bool
    features: tuple[dict[str, Any], ...]
    """``name``, ``works`` and ``detail`` of each feature that was tried."""
    fingerprint: Fingerprint
    advice: tuple[str, ...]


def examine(options: Options) -> Examination:
    """Try this machine's features in a worker, and collect its fingerprint.

    Raises NoDeviceError where a GPU was asked for and there is none.
    """
    result = run_worker(
        ProbeJob(device=options.device),
        stage="doctor",
        limit_s=options.limit_s,
        on_progress=options.on_progress,
    )
    if result.error is not None:
        raise result.error
    name, simulated = result.answer.get("device", "unknown"), result.answer.get("simulated", False)
    features = tuple(result.answer.get("features", ()))
    if result.end.outcome != "finished":
        features += ({"name": "all features", "works": False, "detail": result.end.reason},)
    advice = (result.answer.get("why_no_gpu"), fingerprint.framework_mismatch())
    return Examination(
        device=name,
        simulated=simulated,
        features=features,
        fingerprint=_examined_fingerprint(result.answer, name, simulated),
        advice=tuple(text for text in advice if text),
    )


def _examined_fingerprint(answer: dict[str, Any], name: str, simulated: bool) -> Fingerprint:
    """The worker's, which had the CUDA libraries loaded; this process's if that one did not get so far."""
    if "fingerprint" in answer:
        return msgspec.convert(answer["fingerprint"], Fingerprint)
    return fingerprint.collect(simulated=simulated, device_name=name)
