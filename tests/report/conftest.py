"""The reports are tested on the evidence that the gates' tests build."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "gates"))


@pytest.fixture
def printed() -> Callable[..., str]:
    """What a print function writes to 80 columns that are no terminal."""

    def run(function: Callable[..., None], *values: object) -> str:
        out = io.StringIO()
        function(Console(file=out, width=80), *values)
        return out.getvalue()

    return run
