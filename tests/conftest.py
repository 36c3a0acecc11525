"""The device that tests run on, and the ``gpu`` marker: skipped, with the reason, where there is no GPU.

With ``CGATE_REQUIRE_GPU=1`` that reason is a failure, so that a GPU run can't pass by skipping.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import lru_cache

import pytest

from cudagraph_gate.device import Device
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.errors import NoDeviceError


@lru_cache(maxsize=1)
def no_gpu_reason() -> str | None:
    """Why no GPU can be opened, or None when one can."""
    from cudagraph_gate.device.cuda import CudaDevice

    try:
        CudaDevice()
    except NoDeviceError as error:
        return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    # A trial in this process collects garbage before each timed block: what lives by now, which is a lot in a
    # test process, need not be looked through each time.
    gc.collect()
    gc.freeze()
    if item.get_closest_marker("gpu") is None:
        return
    reason = no_gpu_reason()
    if reason is None:
        return
    if os.environ.get("CGATE_REQUIRE_GPU") == "1":
        pytest.fail(f"CGATE_REQUIRE_GPU=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The simulated device, and a GPU where there is one."""
    if request.param == "cuda":
        from cudagraph_gate.device.cuda import CudaDevice

        opened: Device = CudaDevice()
    else:
        opened = SimulatedDevice()
    yield opened
    opened.close()
