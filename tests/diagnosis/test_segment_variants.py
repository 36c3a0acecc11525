"""Variants of a segment, what varies and how often, and the longest piece that stays the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from made_segments import Program, only

from cudagraph_gate.model import NotMeasured, Segment, StablePiece


def repeated(repeats: Iterable[list[tuple[str, dict[str, Any]]]]) -> Segment:
    """One run between blocking calls a repeat, one launch an operation."""
    program = Program()
    for operations in repeats:
        for operation in operations:
            program.launch([operation])
        program.sync()
    return only(program.timeline())


def letters(text: str, **others: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(letter, others) for letter in text]


def variation(segment: Segment) -> dict[str, float]:
    names = ("operation_count", "order", "grid", "sizes", "streams")
    return {name: share for name in names if (share := getattr(segment.variation, name))}


def test_equal_repeats_have_one_variant() -> None:
    segment = repeated([letters("ABC")] * 4)
    assert [(one.repeats, one.share, one.operations) for one in segment.variants] == [(4, 1.0, 3)]
    assert variation(segment) == {}
    assert segment.signature == segment.variants[0].signature


def test_two_branches_have_their_shares() -> None:
    segment = repeated([letters("ABCDEF" if number % 10 < 7 else "ABXXEF") for number in range(10)])
    assert [one.share for one in segment.variants] == [0.7, 0.3]
    assert segment.variant_count == 2
    assert variation(segment) == {"order": 0.3}
    assert segment.kernels == dict.fromkeys("ABCDEF", 1)


def test_growing_grids_vary_alone() -> None:
    segment = repeated(
        [("A", {}), ("B", {"grid_x": max(number - 6, 1)}), ("C", {}), ("D", {})] for number in range(10)
    )
    # The grid is 1 up to the eighth repeat, then 2 and 3.
    assert variation(segment) == {"grid": 0.2}
    assert [one.repeats for one in segment.variants] == [8, 1, 1]
    piece = segment.stable_piece
    assert isinstance(piece, StablePiece)
    assert (piece.first_operation, piece.last_operation) == ("C", "D")


def test_no_piece_is_stable_where_every_other_operation_varies() -> None:
    grids = [{"grid_x": number} for number in range(5)]
    segment = repeated([("A", {}), ("B", grid), ("C", {}), ("D", grid)] for grid in grids)
    assert segment.stable_piece == NotMeasured(
        reason="no 2 neighbouring operations are the same in 95% of the repeats"
    )


def test_batch_sizes_vary_copies() -> None:
    copy = {"kind": "memcpy"}
    segment = repeated(
        [("HtoD", copy | {"bytes": 4096 if number < 3 else 8192}), *letters("AB")] for number in range(5)
    )
    assert variation(segment) == {"sizes": 0.4}
    assert segment.variants[0].repeats == 3


def test_streams_vary() -> None:
    segment = repeated([("A", {}), ("B", {"stream": 8 if number else 7})] for number in range(4))
    assert variation(segment) == {"streams": 0.25}


def test_another_order_is_another_variant() -> None:
    segment = repeated([letters("ABCD" if number else "ABDC") for number in range(5)])
    assert variation(segment) == {"order": 0.2}


def test_graphs_with_other_node_counts_vary_the_operation_count() -> None:
    program = Program()
    for number in range(4):
        nodes = [("n", {"graph": 5})] * (34 if number else 33)
        program.run("AB").launch(nodes, "cuGraphLaunch").sync()
    segment = only(program.timeline())
    assert variation(segment) == {"operation_count": 0.25}
    assert [one.operations for one in segment.variants] == [36, 35]


def test_the_longest_stable_piece_lies_between_what_varies() -> None:
    segment = repeated(
        [*letters("AB"), ("C", {"grid_x": number}), *letters("DEFGH"), ("I", {"grid_x": number % 2})]
        for number in range(10)
    )
    assert segment.variant_count == 10
    piece = segment.stable_piece
    assert isinstance(piece, StablePiece)
    assert (piece.first, piece.operations, piece.repeat_share) == (3, 5, 1.0)
    assert (piece.first_operation, piece.last_operation) == ("D", "H")


def test_a_piece_counts_as_stable_from_95_percent_on() -> None:
    def piece(different: int) -> StablePiece | NotMeasured:
        return repeated(
            letters("ABCDEF" if number >= different else "ABxDEF") for number in range(20)
        ).stable_piece

    found = piece(1)
    assert isinstance(found, StablePiece)
    assert (found.first, found.operations, found.repeat_share) == (0, 6, 0.95)
    found = piece(2)
    assert isinstance(found, StablePiece)
    assert (found.first, found.operations, found.repeat_share) == (3, 3, 1.0)


def test_an_inserted_operation_splits_the_piece() -> None:
    segment = repeated(letters("ABCDEFGH" if number % 3 else "ABCxDEFGH") for number in range(9))
    piece = segment.stable_piece
    assert isinstance(piece, StablePiece)
    assert (piece.first_operation, piece.last_operation, piece.first) == ("D", "H", 3)


def test_variants_beyond_the_aligned_ones_count_too() -> None:
    segment = repeated([*letters("AB"), ("C", {"grid_x": number + 1})] for number in range(40))
    assert (len(segment.variants), segment.variant_count) == (10, 40)
    piece = segment.stable_piece
    assert isinstance(piece, StablePiece)
    assert (piece.operations, piece.repeat_share) == (2, 1.0)


def test_signatures_are_equal_in_another_recording() -> None:
    early = repeated([letters("ABC")] * 4)
    late = Program(now=777_000, correlation=99).run("ZY")
    late.sync()
    for _ in range(5):
        late.run("ABC").sync()
    assert only(late.timeline()).signature == early.signature
