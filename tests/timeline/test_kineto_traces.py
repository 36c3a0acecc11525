"""Public traces read with the numbers that an independent count finds in them.

``busy_ns`` and ``span_ns`` are sums over the decimal numbers of the files: doubles would be off by some ns.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.api_names import is_driver, is_graph_launch, is_kernel_launch
from cudagraph_gate.timeline.kineto import read_kineto
from cudagraph_gate.timeline.kineto_ranks import read_ranks
from cudagraph_gate.timeline.table import Timeline

NO_TIMES = NotMeasured(reason="a file")


class Expected(NamedTuple):
    """What a file holds."""

    kernels: int
    copies: int
    memsets: int
    graph_launches: int
    kernels_in_graphs: int
    runtime_launches: int
    driver_launches: int
    syncs: int
    kernels_without_launch: int
    launches_without_kernel: int
    busy_ns: int
    span_ns: int


OF_A_CAPTURE = "sglang_graph_capture_bs32"
"""Its launches were captured and not run: idle is not measurable."""
EXPECTED = {
    "amg_example_1graph": Expected(2330, 265, 0, 1, 554, 1772, 4, 253, 0, 0, 512261000, 655137000),
    "b200_eager": Expected(768, 161, 0, 0, 0, 547, 221, 0, 0, 0, 11596482, 84487178),
    "critical_path_alexnet": Expected(79, 16, 3, 0, 0, 79, 0, 21, 0, 0, 66141000, 12920244000),
    "cuda_event_sync": Expected(4, 1, 0, 0, 0, 4, 0, 3, 0, 0, 51000, 263000),
    "gpu_metrics_input": Expected(30, 2, 0, 0, 0, 30, 0, 3, 0, 0, 50000, 11946000),
    "h100_Falconsai_nsfw": Expected(154, 0, 2, 0, 0, 105, 49, 2, 0, 0, 1225310, 7559844),
    "h100_Qwen1.5-0.5B": Expected(1465, 1, 241, 0, 0, 1028, 1, 3, 436, 0, 45647300, 49652832),
    "inference_rank_1_oldcats": Expected(4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 30000, 1629000),
    "large_integer_rank-70.pt.trace": Expected(1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 50000, 50000),
    "linear_kineto": Expected(8716, 0, 1640, 0, 0, 8716, 0, 1, 0, 0, 370983000, 1008570000),
    "mi210_gpu_only": Expected(562, 0, 0, 0, 0, 223, 339, 1, 0, 0, 5343422, 5979503),
    "mi250_minitoy_ROCm6_2": Expected(14, 2, 0, 0, 0, 12, 2, 1, 0, 0, 149042, 8911887),
    "mi300_Falconsai_nsfw": Expected(155, 0, 0, 0, 0, 65, 90, 2, 0, 0, 1716301, 6868849),
    "mi300_torch_compile_triton": Expected(12, 0, 0, 0, 0, 0, 12, 2, 0, 0, 12549021, 12549032),
    "mtia_inference_rank_0": Expected(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    "nccl_data": Expected(2700, 960, 114, 0, 0, 2700, 0, 25, 0, 0, 157500014, 660551005),
    "ns_resolution_rank-0.pt.trace": Expected(4350, 1600, 145, 0, 0, 4350, 0, 1, 0, 0, 472454441, 480029179),
    "out_of_order_after_fix": Expected(1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 20, 20),
    "own_h200_mlp64_torch_profiler": Expected(25600, 0, 0, 0, 0, 25600, 0, 3, 0, 0, 48523574, 650671781),
    "rank_non_gpu": Expected(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    "resnet50_nw0_2020-12_arrayform.pt.trace": Expected(
        9538, 12, 377, 0, 0, 8802, 0, 12, 736, 0, 649472000, 1292150000
    ),
    "sampled_rank-0": Expected(1154, 40, 10, 0, 0, 1154, 0, 0, 0, 0, 547656000, 1222847000),
    "sampled_rank-1": Expected(1104, 40, 10, 0, 0, 1104, 0, 0, 0, 0, 580050000, 1231186000),
    "sglang_Qwen3-8B_decode_graph": Expected(555, 3, 0, 1, 544, 10, 1, 0, 0, 0, 9772926, 473749943),
    OF_A_CAPTURE: Expected(2, 0, 0, 0, 0, 401, 145, 2, 0, 544, 11015, 11016),
    "trace_diff_test_graph": Expected(9876, 4856, 900, 12, 4464, 4866, 0, 61, 546, 0, 717943000, 745239000),
    "trace_with_manual_capture": Expected(321, 16, 18, 7, 238, 14, 0, 1, 69, 0, 8618910, 8783714),
    "trace_without_manual_capture": Expected(238, 0, 14, 0, 0, 161, 77, 1, 0, 0, 6084575, 17681798),
    "triton_example": Expected(1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1760, 1760),
    "vllm_piecewise_graph": Expected(413, 10, 0, 25, 361, 27, 25, 1, 0, 0, 156085793, 156466417),
}
COARSE = "ns_resolution_rank-0.pt.trace"
"""Its times are doubles on the epoch, which hold no more than 250 ns."""


def path_of(traces: Path, name: str) -> Path:
    return traces / f"{name}.json.gz"


def counted(timeline: Timeline) -> tuple[int, ...]:
    operations, calls = timeline.operations, timeline.calls
    kinds, kernels = operations["kind"].astype(str), operations[operations["kind"] == "kernel"]
    names = [str(name) for name in calls["name"]]
    launches = calls[np.array([is_kernel_launch(name) for name in names], dtype=bool)]
    graphs = calls[np.array([is_graph_launch(name) for name in names], dtype=bool)]
    driver = sum(is_driver(str(name)) for name in launches["name"])
    return (
        *(int((kinds == kind).sum()) for kind in ("kernel", "memcpy", "memset")),
        len(graphs),
        int(kernels["correlation"].isin(graphs["correlation"]).sum()),
        len(launches) - driver,
        driver,
        sum("Synchronize" in name for name in names),
        int((~kernels["correlation"].isin(calls["correlation"])).sum()),
        int((~launches["correlation"].isin(operations["correlation"])).sum()),
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_the_counts_are_those_of_the_file(traces: Path, name: str) -> None:
    assert counted(read_kineto(path_of(traces, name))) == EXPECTED[name][:-2]


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.kernels])
def test_busy_time_and_span_are_exact(traces: Path, name: str) -> None:
    timeline = read_kineto(path_of(traces, name))
    (device,) = diagnose(timeline, NO_TIMES).devices
    slack = timeline.meta.resolution_ns if name == COARSE else 0
    assert device.busy_ns == pytest.approx(EXPECTED[name].busy_ns, abs=slack)
    assert device.window_ns == pytest.approx(EXPECTED[name].span_ns, abs=slack)


@pytest.mark.parametrize(
    "name", [name for name, expected in EXPECTED.items() if expected.kernels and name != OF_A_CAPTURE]
)
def test_idle_has_causes_that_add_up(traces: Path, name: str) -> None:
    (device,) = diagnose(read_kineto(path_of(traces, name)), NO_TIMES).devices
    assert device.busy_ns + sum(device.causes.values()) == device.window_ns


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.graph_launches])
def test_the_operations_of_graph_launches_are_in_a_graph(traces: Path, name: str) -> None:
    timeline = read_kineto(path_of(traces, name))
    kernels = timeline.operations[timeline.operations["kind"] == "kernel"]
    assert int((kernels["graph"] != 0).sum()) == EXPECTED[name].kernels_in_graphs
    assert diagnose(timeline, NO_TIMES).launches.graph_launches == EXPECTED[name].graph_launches


@pytest.mark.parametrize(
    ("name", "resolution_ns"),
    [("linear_kineto", 1000), (COARSE, 250), ("b200_eager", 1), ("mi210_gpu_only", 1)],
)
def test_the_resolution_is_the_files(traces: Path, name: str, resolution_ns: int) -> None:
    assert read_kineto(path_of(traces, name)).meta.resolution_ns == resolution_ns


@pytest.mark.parametrize("name", ["mtia_inference_rank_0", "rank_non_gpu"])
def test_files_without_a_gpu_claim_no_idle(traces: Path, name: str) -> None:
    timeline = read_kineto(path_of(traces, name))
    assert timeline.meta.problems[0].startswith("no ")
    assert diagnose(timeline, NO_TIMES).devices == ()


def test_a_recording_of_a_capture_says_so(traces: Path) -> None:
    timeline = read_kineto(path_of(traces, OF_A_CAPTURE))
    assert timeline.meta.problems[0].startswith("544 of 546 launch calls were captured into a graph")
    diagnosis = diagnose(timeline, NO_TIMES)
    assert diagnosis.launches.submissions == 2
    assert diagnosis.devices[0].idle_ns == NotMeasured(
        reason="544 launches were captured into a graph and 2 operations ran: the recording shows a capture, "
        "not the work"
    )
    assert "busy 100" not in diagnosis.conclusion


def test_an_execution_trace_is_refused_by_its_kind(traces: Path) -> None:
    with pytest.raises(EvidenceError, match="PyTorch execution trace"):
        read_kineto(path_of(traces, "execution_trace_et"))


def test_waits_of_streams_are_told(traces: Path) -> None:
    calls = read_kineto(path_of(traces, "critical_path_alexnet")).calls
    waits = calls[calls["name"] == "cudaStreamWaitEvent"]
    assert int((waits["event"] != 0).sum()) == 20


def test_blocking_calls_have_the_function_that_made_them(traces: Path) -> None:
    calls = read_kineto(path_of(traces, "h100_Falconsai_nsfw")).calls
    assert set(calls["site"][calls["blocking"]]) == {"__init__.py:975 synchronize"}


def test_files_of_many_recordings_are_no_ranks(traces: Path, tmp_path: Path) -> None:
    for name in ("sampled_rank-0", "sampled_rank-1", "nccl_data"):
        (tmp_path / f"{name}.json.gz").write_bytes(path_of(traces, name).read_bytes())
    with pytest.raises(EvidenceError, match="file 1 of 3 shares no moment with the others"):
        read_ranks(tmp_path)


def test_two_ranks_are_two_devices_of_two_processes(traces: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"{rank}.json.gz").write_bytes(path_of(traces, f"sampled_rank-{rank}").read_bytes())
    devices = pd.DataFrame(
        [
            (each.process, each.device, each.busy_ns)
            for each in diagnose(read_ranks(tmp_path), NO_TIMES).devices
        ]
    )
    assert devices.to_numpy().tolist() == [[4037, 0, 547_656_000], [4045, 1, 580_050_000]]
