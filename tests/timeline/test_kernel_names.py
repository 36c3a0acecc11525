"""Symbols become the names that people use."""

from __future__ import annotations

import pytest

from cudagraph_gate.timeline.kernel_names import kernel_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("scale_add", "scale_add"),
        ("_Z9scale_addPfi", "scale_add"),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZE",
            "at::native::vectorized_elementwise_kernel",
        ),
        (
            "_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_indexIiE",
            "(anonymous)::elementwise_kernel_with_index",
        ),
        ("nvjet_sm90_hsh_64x8_64x16_1x4_h_bz_NNT", "nvjet_sm90_hsh_64x8_64x16_1x4_h_bz_NNT"),
        ("void at::native::f<4>(int)", "at::native::f"),
        ("void clover::ranged<build(global &)::[lambda(int) (instance 1)]>(Range1d, T1)", "clover::ranged"),
        ("void at::(anonymous namespace)::f<4>(int)", "at::(anonymous)::f"),
        ("void cutlass::Kernel<gemm_nt>(gemm_nt::Params)", "cutlass::Kernel"),
        ("execute_context_1(888)_generation", "execute_context_1(888)_generation"),
        ("half <of a name", "half <of a name"),
        ("broken)", "broken)"),
        ("_ZN", "_ZN"),
        ("_Z", "_Z"),
        ("", ""),
    ],
)
def test_a_kernels_name_is_its_qualified_name(symbol: str, name: str) -> None:
    assert kernel_name(symbol) == name
