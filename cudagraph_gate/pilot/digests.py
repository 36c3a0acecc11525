"""Arrays told apart without keeping them: by a digest, or as being what they were at the start."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from cudagraph_gate.adapters import Adapter
from cudagraph_gate.device.port import HostArray
from cudagraph_gate.pilot.session import Session

AS_AT_START: Final = "as at the start"
"""Stands for the digest of an array that holds what it held at the start of its trajectory."""


def final_state(session: Session, start: Mapping[str, Any]) -> dict[str, str]:
    """Each state array now: as in ``start``, compared on the device, else its digest.

    Most state of a model is never written: reading and hashing all of it would take longer than the requests.
    """
    adapter = session.adapter
    return {
        name: AS_AT_START
        if name in start and adapter.same_values(value, start[name])
        else digest(adapter.to_host(value))
        for name, value in session.state().items()
    }


def changed_state(session: Session, start: Mapping[str, Any], *, besides: Collection[str] = ()) -> list[str]:
    """Names of the state arrays that do not hold what they held at the start, but for those known already."""
    return [
        name
        for name, value in session.state().items()
        if name not in besides and not (name in start and session.adapter.same_values(value, start[name]))
    ]


def digests(adapter: Adapter, named: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each array's values, by name."""
    return {name: digest(adapter.to_host(value)) for name, value in named.items()}


def digest(values: HostArray) -> str:
    """SHA-256 of an array's dtype, shape and values."""
    whole = hashlib.sha256(f"{values.dtype}{values.shape}".encode())
    whole.update(np.ascontiguousarray(values).tobytes())
    return whole.hexdigest()
