"""Raw CUPTI buffers: records are found by size, and gathered as decoding one by one would."""

from __future__ import annotations

import numpy as np
import pytest
from cupti_records import (
    LAYOUTS,
    NEWEST,
    NEWEST_SIZES,
    SizeByKind,
    buffer,
    collected,
    layout,
    record,
    versions,
)
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.timeline.cupti_buffers import (
    KINDS,
    SLABS,
    Bytes,
    choose_layout,
    collect,
    gather,
    record_offsets,
)
from cudagraph_gate.timeline.cupti_kinds import WANTED

KERNELS = versions("activity_kernel")
NEWEST_KERNEL = KERNELS[-1]
KERNEL_BYTES = layout(NEWEST_KERNEL).itemsize
WORDS = KERNEL_BYTES // 8
API_BYTES = 40
UNKNOWN = 61


def kernel(correlation: int, name: str = NEWEST_KERNEL, extra_bytes: int = 0) -> bytes:
    return record(10, name, extra_bytes=extra_bytes, correlation_id=correlation, start=10 * correlation)


def call(correlation: int) -> bytes:
    return record(5, correlation_id=correlation)


def unknown(size: int = 24) -> bytes:
    return np.array([UNKNOWN], np.uint32).tobytes() + b"\x07" * (size - 4)


def offsets(memory: Bytes, valid: int, sizes: dict[int, int], size_of: SizeByKind) -> dict[int, list[int]]:
    return {kind: places.tolist() for kind, places in record_offsets(memory, valid, sizes, size_of).items()}


# --- offsets ----------------------------------------------------------------------------------------


def test_offsets_are_found_by_kind_in_words_of_8_bytes() -> None:
    memory, valid = buffer(call(1), kernel(2), call(3), kernel(4))
    sizes: dict[int, int] = {}
    found = offsets(memory, valid, sizes, SizeByKind(NEWEST_SIZES))
    assert found == {5: [0, 5 + WORDS], 10: [5, 10 + WORDS]}
    assert sizes == {5: API_BYTES, 10: KERNEL_BYTES}


def test_cupti_is_asked_once_a_kind_and_not_again_for_the_next_buffer() -> None:
    size_of = SizeByKind(NEWEST_SIZES)
    sizes: dict[int, int] = {}
    memory, valid = buffer(call(1), call(2), kernel(3), kernel(4), call(5))
    record_offsets(memory, valid, sizes, size_of)
    record_offsets(memory, valid, sizes, size_of)
    assert size_of.asked == [(5, 0), (10, 80)]


def test_a_kind_first_seen_as_the_last_record_has_a_place_but_no_size() -> None:
    memory, valid = buffer(call(1), call(2), kernel(3))
    sizes: dict[int, int] = {}
    assert offsets(memory, valid, sizes, SizeByKind(NEWEST_SIZES)) == {5: [0, 5], 10: [10]}
    assert sizes == {5: API_BYTES}


def test_an_empty_buffer_has_no_records() -> None:
    memory, valid = buffer()
    assert offsets(memory, valid, {}, SizeByKind({})) == {}


# --- layouts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*KERNELS, *versions("activity_memcpy"), *versions("activity_memset")])
def test_the_layout_of_the_records_own_size_is_chosen(name: str) -> None:
    wanted = layout(name)
    assert choose_layout(LAYOUTS, name.rstrip("0123456789"), wanted.itemsize) == wanted


def test_a_record_between_two_versions_is_read_by_the_older_one() -> None:
    older, newer = np.dtype([("kind", "i4"), ("x", "V204")]), np.dtype([("kind", "i4"), ("x", "V244")])
    versions = {"activity_kernel9_dtype": older, "activity_kernel13_dtype": newer}
    assert choose_layout(versions, "activity_kernel", 240) == older


def test_a_record_of_a_newer_cupti_is_read_by_the_newest_layout() -> None:
    assert choose_layout(LAYOUTS, "activity_kernel", KERNEL_BYTES + 72) == layout(NEWEST_KERNEL)


def test_a_record_smaller_than_every_version_has_no_layout() -> None:
    assert choose_layout(LAYOUTS, "activity_kernel", 200) is None


def test_without_a_size_the_smallest_version_is_chosen() -> None:
    assert choose_layout(LAYOUTS, "activity_memcpy", None) == layout(versions("activity_memcpy")[0])


def test_families_whose_names_begin_alike_are_not_mixed() -> None:
    # activity_memcpy_pto_p4 and activity_marker_data are other records.
    assert choose_layout(LAYOUTS, "activity_memcpy", 96) == layout("activity_memcpy6")
    assert choose_layout(LAYOUTS, "activity_marker", None) == layout("activity_marker2")


def test_an_unknown_family_has_no_layout() -> None:
    assert choose_layout(LAYOUTS, "activity_nothing", None) is None
    assert choose_layout(LAYOUTS, "activity_nothing", 64) is None


# --- leaps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", ["5", "a", "45a", "5a5", "555a"])
def test_a_long_loop_is_walked_as_record_by_record(loop: str) -> None:
    kinds = [int(kind, 16) for kind in loop] * (2 * SLABS[0])
    kinds[SLABS[0] + 7] = 38  # something else happens once, on the way
    assert_walked(kinds)


@given(st.lists(st.tuples(st.lists(st.sampled_from([4, 5, 10, 12]), min_size=1), st.integers(1, 300))))
def test_walking_equals_adding_sizes_up(loops: list[tuple[list[int], int]]) -> None:
    assert_walked([kind for body, repeats in loops for kind in body * repeats])


def assert_walked(kinds: list[int]) -> None:
    content = {kind: record(kind) for kind in set(kinds)}
    memory, valid = buffer(*(content[kind] for kind in kinds))
    found = offsets(memory, valid, dict(NEWEST_SIZES), SizeByKind(NEWEST_SIZES))
    ends = np.cumsum([0, *(NEWEST_SIZES[kind] // 8 for kind in kinds)]).tolist()
    places = list(zip(kinds, ends, strict=False))
    assert found == {kind: [place for own, place in places if own == kind] for kind in set(kinds)}


def test_walking_stops_at_a_number_that_is_no_kind() -> None:
    memory, valid = buffer(call(1), np.array([KINDS + 5, 0, 0, 0, 0], np.uint64).tobytes() * 3, call(2))
    records, problems = collect([(memory, valid)], LAYOUTS, WANTED, SizeByKind(NEWEST_SIZES))
    assert records[5]["correlation_id"].tolist() == [1]
    assert problems == [f"1 records of CUPTI kind {KINDS + 5} fit no known layout"]


# --- gathering --------------------------------------------------------------------------------------


def test_a_record_cut_off_by_the_buffers_end_is_left_out() -> None:
    memory, valid = buffer(call(1), call(2))
    found, count = gather(memory[: valid - 8], np.array([0, 5]), layout("activity_api"), ["correlation_id"])
    assert (found["correlation_id"].tolist(), count) == ([1], 1)


def test_gathering_nothing_gives_empty_columns() -> None:
    nothing = np.zeros(0, np.int64)
    found, count = gather(buffer(call(1))[0], nothing, layout("activity_api"), ["start", "cbid"])
    assert {name: len(values) for name, values in found.items()} == {"start": 0, "cbid": 0}
    assert count == 0


def test_a_field_that_a_layout_lacks_is_zero() -> None:
    memory, _valid = buffer(call(1), call(2))
    found, _ = gather(memory, np.array([0, 5]), layout("activity_api"), ["correlation_id", "graph_id"])
    assert (found["correlation_id"].tolist(), found["graph_id"].tolist()) == ([1, 2], [0, 0])


@given(st.lists(st.sampled_from(sorted(NEWEST)), max_size=40), st.integers(0, 2**32 - 1))
def test_gathering_equals_decoding_record_by_record(kinds: list[int], seed: int) -> None:
    content = _random_records(kinds, seed)
    memory, valid = buffer(*content)
    places = record_offsets(memory, valid, dict(NEWEST_SIZES), SizeByKind(NEWEST_SIZES))
    assert sum(map(len, places.values())) == len(kinds)
    for kind, own in places.items():
        whole = layout(NEWEST[kind])
        one_by_one = b"".join(raw for raw, of in zip(content, kinds, strict=True) if of == kind)
        expected = np.frombuffer(one_by_one, whole)
        fields = [name for name in WANTED[kind].fields if "." not in name]
        found, _ = gather(memory[:valid], own, whole, fields)
        assert {name: values.tobytes() for name, values in found.items()} == {
            name: expected[name].tobytes() for name in fields
        }


@given(st.lists(st.sampled_from(sorted(NEWEST)), max_size=40), st.data())
def test_where_the_buffers_end_makes_no_difference(kinds: list[int], data: st.DataObject) -> None:
    content = _random_records(kinds, 7)
    cut = data.draw(st.integers(0, len(kinds)))
    whole = collected(buffer(*content))
    parts = collected(buffer(*content[:cut]), buffer(*content[cut:]))
    assert set(parts) == set(whole)
    for kind, columns in parts.items():
        assert {name: values.tolist() for name, values in columns.items()} == {
            name: values.tolist() for name, values in whole[kind].items()
        }


def _random_records(kinds: list[int], seed: int) -> list[bytes]:
    random = np.random.default_rng(seed)
    content = []
    for kind in kinds:
        raw = random.integers(0, 256, NEWEST_SIZES[kind], np.uint8)
        raw[:4] = np.frombuffer(np.uint32(kind).tobytes(), np.uint8)
        content.append(raw.tobytes())
    return content


# --- collecting -------------------------------------------------------------------------------------


def test_mixed_kinds_of_several_buffers_come_together_in_order() -> None:
    records = collected(buffer(kernel(1), call(2), kernel(3)), buffer(call(4), kernel(5), call(6)))
    assert records[10]["correlation_id"].tolist() == [1, 3, 5]
    assert records[10]["start"].tolist() == [10, 30, 50]
    assert records[5]["correlation_id"].tolist() == [2, 4, 6]


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_every_published_version_are_read(name: str) -> None:
    memory = buffer(kernel(1, name), call(2), kernel(3, name), call(4))
    records = collected(memory, sizes={10: layout(name).itemsize, 5: API_BYTES})
    assert records[10]["correlation_id"].tolist() == [1, 3]
    assert records[5]["correlation_id"].tolist() == [2, 4]


def test_longer_records_of_a_newer_cupti_are_read_by_their_front() -> None:
    memory = buffer(kernel(1, extra_bytes=16), kernel(2, extra_bytes=16), call(3), call(4))
    records = collected(memory, sizes={10: KERNEL_BYTES + 16, 5: API_BYTES})
    assert records[10]["correlation_id"].tolist() == [1, 2]
    assert records[5]["correlation_id"].tolist() == [3, 4]


def test_a_kind_first_seen_at_a_buffers_end_is_kept_and_joined_with_larger_records() -> None:
    records = collected(buffer(call(1), kernel(2)), buffer(kernel(3), call(4), kernel(5)))
    assert records[10]["correlation_id"].tolist() == [2, 3, 5]


def test_records_of_kinds_that_nobody_asked_for_are_counted() -> None:
    memory = buffer(unknown(), call(1), unknown(), unknown(), call(2))
    records, problems = collect([memory], LAYOUTS, WANTED, SizeByKind({UNKNOWN: 24, 5: API_BYTES}))
    assert list(records) == [5]
    assert records[5]["correlation_id"].tolist() == [1, 2]
    assert problems == ["3 records of CUPTI kind 61 fit no known layout"]


def test_records_smaller_than_every_layout_are_counted() -> None:
    small = kernel(1)[:200]
    records, problems = collect(
        [buffer(small, small, call(2), call(3))], LAYOUTS, WANTED, SizeByKind({10: 200, 5: API_BYTES})
    )
    assert records[5]["correlation_id"].tolist() == [2, 3]
    assert 10 not in records
    assert problems == ["2 records of CUPTI kind 10 fit no known layout"]


@pytest.mark.parametrize("missing_bytes", [1, 8, 32])
def test_a_record_that_the_buffer_cuts_off_is_counted(missing_bytes: int) -> None:
    memory, valid = buffer(call(1), call(2), call(3))
    records, problems = collect([(memory, valid - missing_bytes)], LAYOUTS, WANTED, SizeByKind(NEWEST_SIZES))
    assert records[5]["correlation_id"].tolist() == [1, 2]
    assert problems == ["1 records of CUPTI kind 5 fit no known layout"]


def test_no_buffers_give_no_records() -> None:
    assert collect([], LAYOUTS, WANTED, SizeByKind({})) == ({}, [])
