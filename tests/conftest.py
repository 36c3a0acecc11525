"""The ``gpu`` marker: such a test is skipped with the reason where no GPU can be opened.

With ``CGATE_REQUIRE_GPU=1`` that reason is a failure, so that a GPU run can't pass by skipping.
"""

from __future__ import annotations

import os
from functools import lru_cache

import pytest

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
    if item.get_closest_marker("gpu") is None:
        return
    reason = no_gpu_reason()
    if reason is None:
        return
    if os.environ.get("CGATE_REQUIRE_GPU") == "1":
        pytest.fail(f"CGATE_REQUIRE_GPU=1, but {reason}", pytrace=False)
    pytest.skip(reason)
