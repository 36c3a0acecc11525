"""Kernels on a stream that capture does not see are told from another code path."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.escaped import LEGACY_STREAM, EscapedStream, escaped_findings, escaped_streams
from cudagraph_gate.records import Phase
from cudagraph_gate.timeline.table import OPERATION_COLUMNS, frame_of

MAIN, SIDE = 13, 17


def request(*kernels: tuple[int, str], copies: int = 0) -> pd.DataFrame:
    """One request's operations: kernels by stream and name, then copies on a stream of their own."""
    rows = [{"kind": "kernel", "name": name, "stream": stream} for stream, name in kernels]
    rows += [{"kind": "memcpy", "name": "DtoD", "stream": 99}] * copies
    return frame_of(OPERATION_COLUMNS, rows)


def test_nothing_escapes_from_a_graph_that_holds_all_kernels() -> None:
    operations = request((MAIN, "gemm"), (MAIN, "relu"), (SIDE, "norm"))
    assert escaped_streams(operations, {"gemm": 1, "relu": 1, "norm": 1}) == ()


def test_kernels_of_a_stream_that_is_not_captured_are_named_with_it() -> None:
    operations = request((MAIN, "gemm"), (SIDE, "scale"), (SIDE, "add"), (SIDE, "scale"))
    assert escaped_streams(operations, {"gemm": 1}) == (EscapedStream(SIDE, {"scale": 2, "add": 1}),)


def test_the_same_kernel_on_two_streams_is_told_by_its_count() -> None:
    operations = request(*[(MAIN, "scale")] * 3, (SIDE, "scale"))
    assert escaped_streams(operations, {"scale": 3}) == (EscapedStream(SIDE, {"scale": 1}),)


def test_the_legacy_stream_is_suspected_first() -> None:
    operations = request((MAIN, "scale"), (LEGACY_STREAM, "scale"), (MAIN, "gemm"))
    assert escaped_streams(operations, {"scale": 1, "gemm": 1}) == (
        EscapedStream(LEGACY_STREAM, {"scale": 1}),
    )


def test_another_code_path_on_the_captured_stream_is_no_escaped_work() -> None:
    operations = request((MAIN, "gemm"), (MAIN, "flash_attention"))
    assert escaped_streams(operations, {"gemm": 1, "math_attention": 2}) == ()


def test_wholly_other_kernels_are_another_code_path() -> None:
    assert escaped_streams(request((MAIN, "flash")), {"math": 1}) == ()


def test_all_work_escapes_from_an_empty_graph() -> None:
    assert escaped_streams(request((LEGACY_STREAM, "jacobi")), {}) == (
        EscapedStream(LEGACY_STREAM, {"jacobi": 1}),
    )


def test_copies_alone_are_no_escaped_kernels() -> None:
    assert escaped_streams(request((MAIN, "gemm"), copies=2), {"gemm": 1}) == ()
    assert escaped_streams(request(copies=2), {}) == ()


def test_the_finding_names_kernels_stream_and_remedy() -> None:
    (finding,) = escaped_findings("b1", request((MAIN, "gemm"), (LEGACY_STREAM, "stencil")), {"gemm": 1})
    assert (finding.shape, finding.phase, finding.code) == ("b1", Phase.KERNELS, Reason.ESCAPED_WORK)
    assert finding.blocks
    assert finding.call == "stencil"
    assert finding.message == (
        "1 kernel of a request (stencil) on stream 7, the legacy default stream, which the capture "
        "did not see"
    )
    assert "kernel[grid, block, stream]" in finding.advice


@pytest.mark.parametrize(
    ("names", "words"), [("abc", "3 kernels of a request (a, b, c) "), ("abcde", "(a, b, c and 2 others) ")]
)
def test_long_lists_of_kernels_are_cut(names: str, words: str) -> None:
    found = EscapedStream(SIDE, dict.fromkeys(names, 1))
    assert words in found.message
    assert f"on stream {SIDE}, which" in found.message
    assert "event" in found.advice


KERNELS = st.lists(
    st.tuples(st.sampled_from([MAIN, SIDE, LEGACY_STREAM]), st.sampled_from("abc")), max_size=8
)


@given(KERNELS, st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4)))
def test_never_more_escapes_than_is_missing(ran: list[tuple[int, str]], captured: dict[str, int]) -> None:
    escaped = escaped_streams(request(*ran), captured)
    missing = Counter(name for _stream, name in ran) - Counter(captured)
    total = sum((Counter(found.kernels) for found in escaped), Counter[str]())
    assert total <= missing
    for found in escaped:
        assert found.kernels == Counter(name for stream, name in ran if stream == found.stream)
