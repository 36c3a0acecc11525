"""Raw CUPTI buffers: records are found by size, and gathered as decoding one by one would."""

from __future__ import annotations

import numpy as np
import pytest
from cupti_records import (
    LAYOUTS,
    NEWEST,
    NEWEST_SIZES,
    STEMS,
    SizeByKind,
    buffer,
    collected,
    layout,
    record,
    versions,
)
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.timeline.cupti_buffers import Records, choose_layout, collect, gather, record_offsets

KERNELS = versions("activity_kernel")
NEWEST_KERNEL = KERNELS[-1]
SMALLEST_KERNEL_BYTES = layout(KERNELS[0]).itemsize
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


# --- offsets ----------------------------------------------------------------------------------------


def test_offsets_are_found_by_kind_in_words_of_8_bytes() -> None:
    memory, valid = buffer(call(1), kernel(2), call(3), kernel(4))
    sizes: dict[int, int] = {}
    found = record_offsets(memory, valid, sizes, SizeByKind(NEWEST_SIZES))
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
    assert record_offsets(memory, valid, sizes, SizeByKind(NEWEST_SIZES)) == {5: [0, 5], 10: [10]}
    assert sizes == {5: API_BYTES}


def test_an_empty_buffer_has_no_records() -> None:
    memory, valid = buffer()
    assert record_offsets(memory, valid, {}, SizeByKind({})) == {}


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


# --- gathering --------------------------------------------------------------------------------------


def test_a_record_cut_off_by_the_buffers_end_is_left_out() -> None:
    memory, valid = buffer(call(1), call(2))
    found = gather(memory[: valid - 8], [0, 5], layout("activity_api"))
    assert found["correlation_id"].tolist() == [1]


def test_gathering_nothing_gives_an_empty_array_of_the_layout() -> None:
    found = gather(buffer(call(1))[0], [], layout("activity_api"))
    assert (found.shape, found.dtype) == ((0,), layout("activity_api"))


@given(st.lists(st.sampled_from(sorted(NEWEST)), max_size=40), st.integers(0, 2**32 - 1))
def test_gathering_equals_decoding_record_by_record(kinds: list[int], seed: int) -> None:
    content = _random_records(kinds, seed)
    memory, valid = buffer(*content)
    offsets = record_offsets(memory, valid, dict(NEWEST_SIZES), SizeByKind(NEWEST_SIZES))
    assert sum(map(len, offsets.values())) == len(kinds)
    for kind, places in offsets.items():
        own = layout(NEWEST[kind])
        one_by_one = [raw for raw, of in zip(content, kinds, strict=True) if of == kind]
        assert gather(memory[:valid], places, own).tobytes() == b"".join(one_by_one)


@given(st.lists(st.sampled_from(sorted(NEWEST)), max_size=40), st.data())
def test_where_the_buffers_end_makes_no_difference(kinds: list[int], data: st.DataObject) -> None:
    content = _random_records(kinds, 7)
    cut = data.draw(st.integers(0, len(kinds)))
    whole = collected(buffer(*content))
    parts = collected(buffer(*content[:cut]), buffer(*content[cut:]))
    assert set(parts) == set(whole)
    for kind, rows in parts.items():
        # A kind whose size was unknown at a buffer's end is read by the smallest layout: the front fields.
        for name in _fields(rows):
            assert rows[name].tobytes() == whole[kind][name].tobytes()


def _fields(rows: Records) -> list[str]:
    return [name for name in rows.dtype.names or () if not name.startswith("pad")]


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
    assert records[10].dtype == layout(name)
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
    assert records[10].dtype.itemsize == SMALLEST_KERNEL_BYTES


def test_records_of_kinds_that_nobody_asked_for_are_counted() -> None:
    memory = buffer(unknown(), call(1), unknown(), unknown(), call(2))
    records, problems = collect([memory], LAYOUTS, STEMS, SizeByKind({UNKNOWN: 24, 5: API_BYTES}))
    assert list(records) == [5]
    assert records[5]["correlation_id"].tolist() == [1, 2]
    assert problems == ["3 records of CUPTI kind 61 fit no known layout"]


def test_records_smaller_than_every_layout_are_counted() -> None:
    small = kernel(1)[:200]
    records, problems = collect(
        [buffer(small, small, call(2), call(3))], LAYOUTS, STEMS, SizeByKind({10: 200, 5: API_BYTES})
    )
    assert records[5]["correlation_id"].tolist() == [2, 3]
    assert 10 not in records
    assert problems == ["2 records of CUPTI kind 10 fit no known layout"]


@pytest.mark.parametrize("missing_bytes", [1, 8, 32])
def test_a_record_that_the_buffer_cuts_off_is_counted(missing_bytes: int) -> None:
    memory, valid = buffer(call(1), call(2), call(3))
    records, problems = collect([(memory, valid - missing_bytes)], LAYOUTS, STEMS, SizeByKind(NEWEST_SIZES))
    assert records[5]["correlation_id"].tolist() == [1, 2]
    assert problems == ["1 records of CUPTI kind 5 fit no known layout"]


def test_no_buffers_give_no_records() -> None:
    assert collect([], LAYOUTS, STEMS, SizeByKind({})) == ({}, [])
