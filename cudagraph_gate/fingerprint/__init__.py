"""The environment that a verdict holds for: collected, compared and hashed.

Nothing here makes a CUDA context or imports a framework, so it may run before and beside any workload.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from cudagraph_gate import __version__
from cudagraph_gate.fingerprint.gpu import driver_multiprocessors, load_nvml, read_gpu
from cudagraph_gate.fingerprint.machine import initial_environment, read_git, read_machine
from cudagraph_gate.fingerprint.neighbours import digest_of_neighbours
from cudagraph_gate.fingerprint.reading import Readings
from cudagraph_gate.fingerprint.software import (
    PROCESS_FIELDS,
    framework_mismatch,
    read_libraries,
    read_packages,
)
from cudagraph_gate.model import FieldValue, Fingerprint

__all__ = ["SIMULATED_DEVICE", "Sources", "collect", "differences", "digest", "framework_mismatch"]

SIMULATED_DEVICE: Final = "simulated device"
RUN_FIELDS: Final = ("shapes", "input_digest.", "model_version")
"""Beginnings of the fields that only running the workload can tell."""


@dataclass(frozen=True)
class Sources:
    """Where the facts come from; other than the defaults only to read another machine's."""

    root: Path = Path("/")
    """Folder that holds ``proc`` and ``sys``."""
    environ: Mapping[str, str] = field(default_factory=initial_environment)
    """As the process was started with it: frameworks set variables of their own when they are imported."""
    nvml: Callable[[], Any] = load_nvml
    multiprocessors: Callable[[], int] = driver_multiprocessors


def collect(
    *,
    simulated: bool,
    device_name: str,
    workload: Path | None = None,
    shapes: tuple[str, ...] = (),
    input_digests: Mapping[str, str] | None = None,
    model_version: str | None = None,
    sources: Sources | None = None,
) -> Fingerprint:
    """The environment here and now. What can't be read is named in ``missing`` with its reason.

    ``model_version`` is what the workload's ``version()`` says; None where it declares none.
    """
    sources = sources or Sources()
    readings = (
        Readings({"cgate": __version__, "python": platform.python_version()})
        + read_machine(sources.root, sources.environ)
        + read_packages()
        + _device(simulated, device_name, sources)
        + _workload(workload, shapes, input_digests or {})
        + Readings({} if model_version is None else {"model_version": model_version})
    )
    identity = dict(sorted(readings.identity.items()))
    return Fingerprint(
        simulated=simulated,
        digest=digest(identity),
        identity=identity,
        conditions=dict(readings.conditions),
        missing=dict(readings.missing),
    )


def _device(simulated: bool, device_name: str, sources: Sources) -> Readings:
    if simulated:
        return Readings({"device": SIMULATED_DEVICE}, missing={"gpu": SIMULATED_DEVICE})
    gpu = read_gpu(
        sources.nvml,
        sources.multiprocessors,
        device_name=device_name,
        root=sources.root,
        environ=sources.environ,
    )
    return Readings({"device": device_name}) + gpu + read_libraries(sources.root, sys.modules)


def _workload(workload: Path | None, shapes: tuple[str, ...], digests: Mapping[str, str]) -> Readings:
    facts: dict[str, FieldValue] = {f"input_digest.{name}": value for name, value in digests.items()}
    if shapes:
        facts["shapes"] = shapes
    if workload is None:
        return Readings(facts, missing={"workload": "none was named"})
    try:
        facts["workload_sha256"] = hashlib.sha256(workload.read_bytes()).hexdigest()
        if imported := digest_of_neighbours(workload):
            facts["workload_imports_sha256"] = imported
    except OSError as error:
        return Readings(facts, missing={"workload": f"can't read {workload.name} ({error.strerror})"})
    return Readings(facts) + read_git(workload.resolve().parent)


def digest(identity: Mapping[str, FieldValue]) -> str:
    """SHA-256 of the identity as JSON with sorted keys."""
    return hashlib.sha256(msgspec.json.encode(dict(identity), order="deterministic")).hexdigest()


def differences(recorded: Fingerprint, here: Fingerprint) -> tuple[str, ...]:
    """Names of the identity fields that differ, or that only one of the two has.

    What only one of the two processes knows because it ran the workload is not compared: versions of loaded
    libraries (the packages they come from are), shapes, input digests and the model version.
    """
    names = recorded.identity.keys() | here.identity.keys()
    return tuple(name for name in sorted(names) if _differs(name, recorded.identity, here.identity))


def _differs(name: str, recorded: Mapping[str, FieldValue], here: Mapping[str, FieldValue]) -> bool:
    if name in recorded and name in here:
        return recorded[name] != here[name]
    return name not in PROCESS_FIELDS and not name.startswith(RUN_FIELDS)
