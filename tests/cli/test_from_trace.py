"""``cgate profile --from``: the analysis of another recorder's file, where there is no GPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from command import Ended, runs, write
from served import cgate

LAUNCH_US = 5
ROUND_US = 400
ROUNDS = 20
KERNELS = 8


def complete(name: str, category: str, start: float, lasted: float, **others: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": start,
        "dur": lasted,
        "pid": 77,
        "tid": 77,
    } | others


def one_round(number: int) -> list[dict[str, Any]]:
    """Eight launches 40 µs apart, each with a kernel of 2 µs that starts 8 µs after it, and a wait."""
    begin = number * ROUND_US
    events = []
    for index in range(KERNELS):
        launched, correlation = begin + 40 * index, 1 + number * (KERNELS + 1) + index
        arguments = {"correlation": correlation}
        on_gpu = arguments | {"device": 0, "stream": 7, "context": 1, "grid": [1, 1, 1], "block": [64, 1, 1]}
        name = f"kernel_{index}"
        events.append(complete("cudaLaunchKernel", "cuda_runtime", launched, LAUNCH_US, args=arguments))
        events.append(complete(name, "kernel", launched + 8, 2, pid=0, tid=7, args=on_gpu))
    waited = {"correlation": 1 + number * (KERNELS + 1) + KERNELS}
    return [*events, complete("cudaStreamSynchronize", "cuda_runtime", begin + 330, 10, args=waited)]


def trace(folder: Path, name: str = "trace.json.gz", **others: Any) -> Path:
    """A launch-bound trace of torch.profiler: 20 rounds of 8 kernels, busy 16 of 400 µs."""
    events = [event for number in range(ROUNDS) for event in one_round(number)]
    text = json.dumps({"baseTimeNanoseconds": 0, "traceEvents": events} | others).encode()
    path = folder / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def found(folder: Path, *more: str) -> dict[str, Any]:
    ended = cgate(folder, "profile", "--from", trace(folder).name, "--json", *more)
    assert ended.code == 0, ended
    answer: dict[str, Any] = json.loads(ended.out)
    return answer


def test_busy_and_idle_are_those_of_the_file(tmp_path: Path):
    (device,) = found(tmp_path)["diagnosis"]["devices"]
    assert device["busy_ns"] == ROUNDS * KERNELS * 2_000
    assert device["window_ns"] == ((ROUNDS - 1) * ROUND_US + 40 * (KERNELS - 1) + 2) * 1000
    assert device["busy_ns"] + sum(device["causes"].values()) == device["window_ns"]


def test_the_rounds_are_found_as_a_segment_and_submission_limits(tmp_path: Path):
    diagnosis = found(tmp_path)["diagnosis"]
    best = diagnosis["segments"][0]
    assert (best["operations"], best["repeats"]) == (KERNELS, ROUNDS)
    assert best["variation"] == dict.fromkeys(best["variation"], 0.0)
    assert diagnosis["limiter"] == "submission"


def test_a_person_reads_conclusion_table_segments_and_next_command(tmp_path: Path):
    ended = cgate(tmp_path, "profile", "--from", trace(tmp_path, "trace.json").name)
    assert ended.code == 0, ended
    for words in ("100.0 %", "host_work", "repeating segments", "next: "):
        assert words in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_the_definitions_of_hta_stand_beside_ours(tmp_path: Path):
    (stream,) = found(tmp_path, "--definitions", "hta")["hta"]["streams"]
    assert stream["stream"] == 7
    gaps = ROUNDS * KERNELS - 1
    assert stream["idle_ns"] == stream["host_wait_ns"] == (gaps * 38 + (ROUNDS - 1) * 80) * 1000


def test_the_timeline_and_the_map_are_written(tmp_path: Path):
    found(tmp_path, "--perfetto", "out.json", "--dot", "map.dot")
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert (tmp_path / "map.dot").read_text().startswith("digraph")


def test_the_evidence_is_judged_as_far_as_it_goes(tmp_path: Path):
    found(tmp_path)
    ended = cgate(tmp_path, "verdict", "--json")
    verdict = json.loads(ended.out)
    assert (ended.code, verdict["verdict"]) == (12, "INCONCLUSIVE")
    assert "pass" not in [gate["status"] for gate in verdict["gates"] if gate["number"] in (2, 3, 4, 6)]


def test_there_is_no_step_to_try(tmp_path: Path):
    found(tmp_path)
    ended = cgate(tmp_path, "pilot")
    assert (ended.code, ended.out) == (2, "")
    assert "trace.json.gz" in ended.complaint


def test_what_surrounds_the_events_stays_out(tmp_path: Path):
    path = trace(tmp_path, username="jane", hostname="secret-host", environment={"TOKEN": "hunter2"})
    ended = cgate(tmp_path, "profile", "--from", path.name, "--json", "--perfetto", "out.json")
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file != path]
    for word in (b"jane", b"secret-host", b"hunter2"):
        assert word not in ended.out.encode()
        assert not any(word in content for content in written)


BESIDE = (
    ("model.py",),
    ("--device", "simulated"),
    ("--shapes", "b1"),
    ("--duration", "1"),
    ("--iterations", "3"),
    ("--trace-children",),
    ("--range", "no such range"),
    ("--definitions", "mine"),
    ("--perfetto", "trace.json.gz"),
    ("--perfetto", "same.json", "--dot", "same.json"),
    ("--dot", "no/such/folder/map.dot"),
)


@pytest.mark.parametrize("more", BESIDE)
def test_what_does_not_go_with_a_trace_is_refused(tmp_path: Path, more: tuple[str, ...]):
    write(tmp_path)
    path = trace(tmp_path)
    content = path.read_bytes()
    ended = cgate(tmp_path, "profile", "--from", path.name, *more)
    assert _refused(ended, 2), ended
    assert path.read_bytes() == content


UNREADABLE: dict[str, bytes] = {
    "empty.json": b"",
    "text.txt": b"hello",
    "cut.gz": gzip.compress(b'{"traceEvents": [')[:12],
    "other.json": b'{"nodes": []}',
    "number.json": b"17",
    "fake.sqlite": b"SQLite format 3\x00" + bytes(100),
    "zeros.json": bytes(1000),
}


@pytest.mark.parametrize("name", [*UNREADABLE, "missing.json", "."])
def test_what_is_no_trace_is_refused_and_leaves_no_run(tmp_path: Path, name: str):
    if name in UNREADABLE:
        (tmp_path / name).write_bytes(UNREADABLE[name])
    ended = cgate(tmp_path, "profile", "--from", name)
    assert _refused(ended, 22), ended
    assert not runs(tmp_path)


@pytest.mark.parametrize("command", ["profile", "pilot", "run"])
def test_a_trace_without_its_option_is_told_how_to_be_read(tmp_path: Path, command: str):
    ended = cgate(tmp_path, command, trace(tmp_path).name)
    assert _refused(ended, 2), ended
    assert "cgate profile --from trace.json.gz" in ended.complaint


def test_a_trace_without_gpu_work_is_no_evidence(tmp_path: Path):
    calls = [event for event in one_round(0) if event["cat"] != "kernel"]
    (tmp_path / "cpu.json").write_text(json.dumps({"traceEvents": calls}))
    assert _refused(cgate(tmp_path, "profile", "--from", "cpu.json"), 22)
    assert not runs(tmp_path)


def test_the_name_of_a_range_that_is_nearly_right_is_suggested(tmp_path: Path):
    step = complete("aten::layer_norm", "cpu_op", 0, 350)
    events = [event for number in range(ROUNDS) for event in one_round(number)]
    (tmp_path / "named.json").write_text(json.dumps({"traceEvents": [*events, step]}))
    ended = cgate(tmp_path, "profile", "--from", "named.json", "--range", "layer_norm")
    assert _refused(ended, 2)
    assert "aten::layer_norm" in ended.complaint


def test_without_a_file_and_a_workload_it_says_what_to_name(tmp_path: Path):
    assert _refused(cgate(tmp_path, "profile"), 2)


def _refused(ended: Ended, code: int) -> bool:
    one_line = ended.complaint.startswith("cgate: ") and "Traceback" not in ended.err
    return ended.code == code and ended.out == "" and one_line
