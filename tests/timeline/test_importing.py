from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cudagraph_gate.errors import EvidenceError, ExitCode
from cudagraph_gate.timeline.importing import read_trace
from tests.timeline.nsys_files import Export

KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "gemm",
    "ts": 10,
    "dur": 5,
    "pid": 0,
    "tid": 7,
    "args": {"device": 0, "context": 1, "stream": 7, "correlation": 3},
}
KINETO = json.dumps({"schemaVersion": 1, "traceEvents": [KERNEL]}).encode()


def refusal(path: Path) -> str:
    with pytest.raises(EvidenceError) as raised:
        read_trace(path)
    assert raised.value.exit_code == ExitCode.EVIDENCE
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_database_is_an_nsight_export_whatever_its_name(tmp_path: Path) -> None:
    Export(tmp_path / "trace.json").kernel(1, 2).done()
    assert read_trace(tmp_path / "trace.json").meta.source == "Nsight Systems"


@pytest.mark.parametrize("content", [KINETO, gzip.compress(KINETO, mtime=0), b"\xef\xbb\xbf\n " + KINETO])
def test_json_is_a_kineto_trace_whatever_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace.sqlite").write_bytes(content)
    assert read_trace(tmp_path / "trace.sqlite").operations["name"].tolist() == ["gemm"]


def test_a_folder_holds_one_file_a_rank(tmp_path: Path) -> None:
    for rank in range(2):
        content = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": [KERNEL]}
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(content))
    assert len(read_trace(tmp_path).operations) == 2


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    assert "holds no .json" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.nsys-rep", b"anything\x00", "not exported; export the report again: nsys export --type sqlite"),
        ("a.qdrep", b"anything\x00", "not exported; export the report again: nsys export --type sqlite"),
        ("a.ncu-rep", b"NVR\x00", "Nsight Compute, which holds no timeline"),
        ("a.parquet", b"PAR1....", "a Parquet file; export the report again"),
        ("a.h5", b"\x89HDF\r\n", "an HDF5 file; export the report again"),
        ("a.json.zst", b"\x28\xb5\x2f\xfd....", "unpack it first: zstd -d"),
        ("a.csv", b"name,start\n", "a text file that is not JSON; cgate reads torch.profiler JSON"),
        ("a.csv.gz", gzip.compress(b"name,start\n", mtime=0), "a text file that is not JSON"),
        ("a.bin", b"\x00\x01\x02", "a binary file of an unknown kind"),
        ("a.json", b"", "the trace is empty"),
        ("a.json.gz", b"\x1f\x8b\x08\xff\xff", "cgate reads|damaged"),
    ],
)
def test_anything_else_is_refused_in_one_clear_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert any(part in refusal(tmp_path / name) for part in said.split("|"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.json")


def test_every_public_trace_finds_its_reader(traces: Path) -> None:
    assert read_trace(traces / "healthy_1pct.sqlite").meta.source.startswith("Nsight Systems")
    assert len(read_trace(traces / "out_of_order_after_fix.json.gz").operations) == 1
