"""What names of calls say."""

from __future__ import annotations

import pytest

from cudagraph_gate.timeline.api_names import (
    is_blocking,
    is_driver,
    is_graph_launch,
    is_kernel_launch,
    is_launch,
)


@pytest.mark.parametrize(
    "name",
    [
        "cudaDeviceSynchronize",
        "cuStreamSynchronize",
        "hipEventSynchronize",
        "cudaMemcpy",
        "cuMemcpyDtoH_v2",
        "hipMemcpyWithStream",
    ],
)
def test_blocking_calls(name: str) -> None:
    assert is_blocking(name)


@pytest.mark.parametrize(
    "name",
    ["cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2", "hipMemcpyAsync", "cudaMemcpyBatchAsync", "cudaEventQuery"],
)
def test_calls_that_do_not_block(name: str) -> None:
    assert not is_blocking(name)


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaLaunchCooperativeKernel",
        "cuLaunchKernelEx",
        "hipLaunchKernel",
        "hipExtLaunchKernel",
        "hipModuleLaunchKernel",
        "hipExtModuleLaunchKernel",
    ],
)
def test_kernel_launches(name: str) -> None:
    assert is_kernel_launch(name)
    assert is_launch(name)
    assert not is_graph_launch(name)


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"])
def test_graph_launches(name: str) -> None:
    assert is_graph_launch(name)
    assert is_launch(name)
    assert not is_kernel_launch(name)


@pytest.mark.parametrize(
    "name", ["cudaLaunchHostFunc", "cuLaunchHostFunc", "cudaMemcpyAsync", "cudaGraphInstantiate"]
)
def test_calls_that_launch_no_kernel(name: str) -> None:
    assert not is_launch(name)


def test_the_driver_api_is_told_from_the_runtime_api() -> None:
    driver = ["cuLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel"]
    runtime = ["cudaLaunchKernel", "hipLaunchKernel", "hipExtLaunchKernel"]
    assert [is_driver(name) for name in driver + runtime] == [True] * 3 + [False] * 3
