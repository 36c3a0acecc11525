"""Numbers and names as a person reads them."""

from __future__ import annotations

import pytest

from cudagraph_gate.gates.wording import percent


@pytest.mark.parametrize(
    ("share", "text"), [(0.1234, "12.3 %"), (-0.0004, "0.0 %"), (-0.0006, "-0.1 %"), (1, "100.0 %")]
)
def test_a_share_is_a_percentage_without_a_minus_before_zero(share: float, text: str) -> None:
    assert percent(share) == text
