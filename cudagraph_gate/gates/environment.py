"""Gate 3, environment: it is known what the verdict holds for, and it still is that."""

from __future__ import annotations

from typing import Final

from cudagraph_gate.evidence import FINGERPRINT_FILE, missing
from cudagraph_gate.gates.check import Check, Gate, holds, undecided
from cudagraph_gate.gates.wording import listed
from cudagraph_gate.model import Fingerprint, GateResult, Reason

GATE = Gate(3, "environment", (FINGERPRINT_FILE,))
SOFTWARE_FIELDS: Final = ("python", "cgate", "workload_sha256", "shapes")
"""What must be known of any run."""
GPU_FIELDS: Final = ("gpu_name", "gpu_uuid", "compute_capability", "driver_version", "cuda_driver")
"""What must be known of a GPU besides; the simulated device has none of it."""

TELLING_FIELDS: Final = ("workload_sha256", "gpu_name", "gpu_uuid", "driver_version", "cuda_driver", "torch")
NAMED_FIELDS: Final = 6
"""Fields that a sentence names; the verdict's ``stale`` holds all."""


def environment_gate(fingerprint: Fingerprint | None, stale: tuple[str, ...]) -> GateResult:
    """Judge whether the fingerprint is complete; ``stale`` are its fields that differ on this machine."""
    checks = [_stale_check(stale)] if stale else []
    if fingerprint is None:
        checks.append(undecided(Reason.ENVIRONMENT, missing("fingerprint").reason))
        return GATE.result(checks, {"stale": list(stale)}, {})
    required = required_fields(fingerprint)
    absent = [name for name in required if fingerprint.identity.get(name) in (None, "", ())]
    checks.append(_complete_check(fingerprint, absent))
    measured = {"digest": fingerprint.digest, "missing": absent, "stale": list(stale)}
    return GATE.result(checks, measured, {"required": list(required)})


def required_fields(fingerprint: Fingerprint) -> tuple[str, ...]:
    """The identity fields without which a verdict holds for nothing in particular."""
    return SOFTWARE_FIELDS if fingerprint.simulated else GPU_FIELDS + SOFTWARE_FIELDS


def _stale_check(stale: tuple[str, ...]) -> Check:
    return undecided(Reason.ENVIRONMENT, f"stale: recorded in another environment, {stale_text(stale)}")


def stale_text(stale: tuple[str, ...]) -> str:
    """The fields that differ, those first that say most: ``gpu_name, torch and 20 more differ here``."""
    telling = [name for name in TELLING_FIELDS if name in stale]
    rest = [name for name in stale if name not in TELLING_FIELDS]
    return f"{listed([*telling, *rest], NAMED_FIELDS)} differ here"


def _complete_check(fingerprint: Fingerprint, absent: list[str]) -> Check:
    if not absent:
        return holds(f"the fingerprint is complete, {len(fingerprint.identity)} fields")
    why = ", ".join(f"{name} ({fingerprint.missing.get(name, 'not recorded')})" for name in absent)
    return undecided(Reason.ENVIRONMENT, f"the fingerprint lacks {why}")
