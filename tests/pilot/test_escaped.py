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


def test_nothing_escapes_where_nothing_runs_during_the_capture() -> None:
    assert escaped_streams(request(), {"gemm": 1}) == ()


def test_kernels_that_ran_and_are_missing_are_named_with_their_stream() -> None:
    during = request((SIDE, "scale"), (SIDE, "add"), (SIDE, "scale"))
    assert escaped_streams(during, {"scale": 2, "add": 1}) == (EscapedStream(SIDE, {"scale": 2, "add": 1}),)


def test_what_a_framework_runs_for_itself_during_a_capture_is_none_of_the_steps_work() -> None:
    assert escaped_streams(request((MAIN, "seed_generator")), {"scale": 1}) == ()


def test_another_code_path_is_no_escaped_work() -> None:
    assert escaped_streams(request(), {"flash_attention": 1}) == ()


def test_the_legacy_stream_is_named_first() -> None:
    during = request((MAIN - 7, "scale"), (LEGACY_STREAM, "scale"))
    assert [found.stream for found in escaped_streams(during, {"scale": 2})] == [LEGACY_STREAM, MAIN - 7]


def test_copies_are_no_escaped_kernels() -> None:
    assert escaped_streams(request(copies=2), {"gemm": 1}) == ()


def test_the_finding_names_kernels_stream_and_remedy() -> None:
    (finding,) = escaped_findings("b1", request((LEGACY_STREAM, "stencil")), {"stencil": 1})
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


@given(KERNELS, st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4)))
def test_all_that_ran_and_is_missing_escapes_and_nothing_else(
    ran: list[tuple[int, str]], missing: dict[str, int]
) -> None:
    found = escaped_streams(request(*ran), missing)
    total = sum((Counter(stream.kernels) for stream in found), Counter[str]())
    assert total == Counter(name for _stream, name in ran if name in missing)
