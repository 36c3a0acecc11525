"""The device of the adapters' tests: simulated and, where there is one, a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cudagraph_gate.device import Device
from cudagraph_gate.device.simulated import SimulatedDevice


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    if request.param == "cuda":
        from cudagraph_gate.device.cuda import CudaDevice

        opened: Device = CudaDevice()
    else:
        opened = SimulatedDevice()
    yield opened
    opened.close()
