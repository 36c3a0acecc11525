"""What the environment is that a verdict holds for."""

from __future__ import annotations

from cudagraph_gate.model.base import SCHEMA_VERSION, Value

Scalar = str | int | float | bool
FieldValue = Scalar | tuple[str, ...]


class Fingerprint(Value, frozen=True, kw_only=True, tag="fingerprint"):
    """The environment a verdict holds for.

    ``identity`` must be equal for a verdict to stay valid; ``conditions`` (clocks now, free memory) are
    recorded but not compared; ``missing`` names what could not be read and why. ``digest`` is the SHA-256
    of ``identity``.
    """

    schema_version: int = SCHEMA_VERSION
    simulated: bool
    digest: str
    identity: dict[str, FieldValue]
    conditions: dict[str, FieldValue]
    missing: dict[str, str]
