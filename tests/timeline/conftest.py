"""What the timeline tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

TRACES: Final = Path(__file__).parents[3] / "shared" / "data" / "traces"
"""Public traces recorded by others; they are no part of the project."""


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of public traces; skips where it is absent."""
    if not TRACES.is_dir():
        pytest.skip("the public traces are not here")
    return TRACES
