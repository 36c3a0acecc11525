"""Who runs after whom in a repeat, what of it can be captured, and the map as Graphviz text."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from made_segments import Program, only

from cudagraph_gate.diagnosis.segment_calls import rule_of
from cudagraph_gate.diagnosis.segment_dot import dot
from cudagraph_gate.diagnosis.segment_map import HOST_SOURCE, MOST_NODES, OUTER_EVENT, UNKNOWN_EVENT
from cudagraph_gate.model import Capturability, MapNode, MapRole, Segment, SegmentMap
from cudagraph_gate.timeline.kernel_libraries import library_of

GEMM = "void cutlass::Kernel<cutlass_80_simt_sgemm>"
RELU = "void at::native::vectorized_elementwise_kernel<4>"
COPY = {"kind": "memcpy"}


def repeated(grow: Callable[[Program], object]) -> Segment:
    program = Program()
    for _ in range(4):
        grow(program)
        program.sync()
    return only(program.timeline())


def mapped(grow: Callable[[Program], object]) -> SegmentMap:
    return repeated(grow).map


def edges(found: SegmentMap) -> list[tuple[int, int, str]]:
    return [(edge.source, edge.target, edge.kind) for edge in found.edges]


def node(found: SegmentMap, role: MapRole) -> MapNode:
    (one,) = (node for node in found.nodes if node.role is role)
    return one


def test_neighbours_of_one_library_are_one_node() -> None:
    def grow(program: Program) -> None:
        program.launch([(GEMM, {})]).launch([(GEMM, {})]).launch([(RELU, {})])

    found = mapped(grow)
    facts = [(one.role, one.library, one.stream, one.operations, one.busy_ns) for one in found.nodes]
    assert facts == [
        (MapRole.WORK, "cuBLAS", 7, 2, 60),
        (MapRole.WORK, "PyTorch", 7, 1, 30),
        (MapRole.BLOCKING, "", 0, 0, 0),
    ]
    assert edges(found) == [(0, 1, "stream"), (1, 2, "host")]
    assert [one.number for one in found.nodes] == [0, 1, 2]


def test_copies_from_and_to_the_host_are_inputs_and_outputs() -> None:
    def grow(program: Program) -> None:
        program.launch([("HtoD", COPY)], "cuMemcpyHtoDAsync").run("A").launch([("DtoH", COPY)])

    found = mapped(grow)
    assert [one.role for one in found.nodes[:3]] == [MapRole.INPUT, MapRole.WORK, MapRole.OUTPUT]
    assert (found.nodes[0].capturable, found.nodes[0].reason) == (Capturability.CAPTURABLE, HOST_SOURCE)


def test_a_stream_that_waits_for_another_one_has_an_event_edge() -> None:
    def grow(program: Program) -> None:
        program.run("A").call("cuEventRecord", stream=7, event=3)
        program.call("cuStreamWaitEvent", stream=9, event=3).run("B", stream=9)

    found = mapped(grow)
    assert [one.role for one in found.nodes[:3]] == [MapRole.WORK, MapRole.WAIT, MapRole.WORK]
    assert edges(found)[:2] == [(0, 1, "event"), (1, 2, "stream")]
    wait = node(found, MapRole.WAIT)
    assert (wait.stream, wait.capturable, wait.reason) == (9, Capturability.CAPTURABLE, "")


def test_work_after_the_record_is_not_waited_for() -> None:
    def grow(program: Program) -> None:
        program.run("A").call("cuEventRecord", stream=7, event=3).run("B")
        program.call("cuStreamWaitEvent", stream=9, event=3).run("C", stream=9)

    found = mapped(grow)
    assert [one.label for one in found.nodes[:4]] == ["A", "B", "cuStreamWaitEvent", "C"]
    assert (0, 2, "event") in edges(found)


@pytest.mark.parametrize(
    ("event", "capturable", "reason"),
    [(99, Capturability.EXPLICIT_ONLY, OUTER_EVENT), (0, Capturability.CAPTURABLE, UNKNOWN_EVENT)],
)
def test_a_wait_for_something_outside_says_so(event: int, capturable: Capturability, reason: str) -> None:
    found = mapped(lambda program: program.run("A").call("cuStreamWaitEvent", stream=7, event=event).run("B"))
    wait = node(found, MapRole.WAIT)
    assert (wait.capturable, wait.reason) == (capturable, reason)


@pytest.mark.parametrize(
    ("name", "capturable"),
    [
        ("cudaStreamAddCallback", Capturability.EXPLICIT_ONLY),
        ("cudaLaunchHostFunc", Capturability.CAPTURABLE),
    ],
)
def test_host_callbacks_stand_in_their_stream(name: str, capturable: Capturability) -> None:
    found = mapped(lambda program: program.run("A").call(name, stream=7).run("B"))
    callback = node(found, MapRole.HOST_CALLBACK)
    assert (callback.capturable, callback.stream) == (capturable, 7)
    assert edges(found)[:2] == [(0, 1, "stream"), (1, 2, "stream")]


def test_prohibited_calls_of_one_name_are_one_node() -> None:
    def grow(program: Program) -> None:
        program.run("A").call("cudaMalloc").run("A").call("cudaMalloc", site="x.py:3 f").run("A")

    segment = repeated(grow)
    found = node(segment.map, MapRole.PROHIBITED)
    assert (found.label, found.capturable) == ("cudaMalloc (2 calls)", Capturability.NOT_CAPTURABLE)
    assert [one.operations for one in segment.map.nodes if one.role is MapRole.WORK] == [3]
    (calls,) = segment.prohibited_calls
    assert (calls.name, calls.count, calls.total_ns) == ("cudaMalloc", 8, 80)
    assert [(site.where, site.count) for site in calls.sites] == [("x.py:3 f", 4)]


def test_a_call_between_repeats_is_not_inside() -> None:
    segment = repeated(lambda program: program.call("cudaMalloc").run("AB").call("cudaFree"))
    assert segment.prohibited_calls == ()


def test_a_graph_launch_is_one_node() -> None:
    def grow(program: Program) -> None:
        program.run("A").launch([("n", {"graph": 5}), ("m", {"graph": 5, "stream": 9})], "cuGraphLaunch")

    graph = node(mapped(grow), MapRole.GRAPH)
    assert (graph.operations, graph.stream, graph.capturable) == (2, 7, Capturability.CAPTURABLE)


def test_a_long_map_ends_in_one_node_for_the_rest() -> None:
    found = mapped(lambda program: [program.launch([(name, {})]) for name in (GEMM, RELU) * 150])
    assert len(found.nodes) == MOST_NODES + 1
    assert found.nodes[-2].label == "101 further parts"
    assert sum(one.operations for one in found.nodes) == 300


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cudaMalloc_v3020", MapRole.PROHIBITED),
        ("cudaMallocAsync", None),
        ("cuMemAlloc_v2", MapRole.PROHIBITED),
        ("cuMemAllocAsync", None),
        ("hipMalloc", MapRole.PROHIBITED),
        ("cudaFree", MapRole.PROHIBITED),
        ("cudaFreeAsync", None),
        ("cuMemFree_v2", MapRole.PROHIBITED),
        ("cudaHostAlloc", MapRole.PROHIBITED),
        ("cuMemHostAlloc", MapRole.PROHIBITED),
        ("cuMemAllocHost_v2", MapRole.PROHIBITED),
        ("cuModuleLoadData", MapRole.PROHIBITED),
        ("cuLibraryLoadData", MapRole.PROHIBITED),
        ("cudaEventQuery", MapRole.PROHIBITED),
        ("cudaStreamQuery", MapRole.PROHIBITED),
        ("cudaStreamBeginCapture_v10000", MapRole.PROHIBITED),
        ("cudaMemset", MapRole.PROHIBITED),
        ("cudaMemsetAsync", None),
        ("hipLaunchHostFunc", MapRole.HOST_CALLBACK),
        ("hipStreamWaitEvent", MapRole.WAIT),
        ("cudaLaunchKernel", None),
        ("cudaMemcpyAsync", None),
    ],
)
def test_calls_are_judged_by_their_names(name: str, role: MapRole | None) -> None:
    rule = rule_of(name)
    assert (rule.role if rule else None) is role
    assert rule is None or role is MapRole.WAIT or rule.reason


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("ampere_sgemm_128x64_nn", "cuBLAS"),
        ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "cuBLASLt"),
        ("cublasLt::splitKreduce_kernel", "cuBLASLt"),
        (GEMM, "cuBLAS"),
        ("cudnn::bn_fw_tr_1C11_kernel_NCHW", "cuDNN"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "NCCL"),
        ("triton_poi_fused_add_0", "Triton"),
        ("void vector_fft<1024u>", "cuFFT"),
        ("void cub::DeviceReduceKernel<int>", "Thrust/CUB"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits>", "FlashAttention"),
        ("cupy_add__float32_float32_float32", "CuPy"),
        ("_ZN6cudapy8__main__3addB2v1", "Numba"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x64x32", "rocBLAS"),
        ("miopenSp3AsmConv_v30", "MIOpen"),
        (RELU, "PyTorch"),
        ("my_kernel", ""),
    ],
)
def test_libraries_are_known_by_their_kernels(name: str, library: str) -> None:
    assert library_of(name) == library


# --- DOT ------------------------------------------------------------------------------------------
def test_the_map_as_graphviz_text() -> None:
    def grow(program: Program) -> None:
        program.run("A").call("cuEventRecord", stream=7, event=3)
        program.call("cuStreamWaitEvent", stream=9, event=3).run("B", stream=9)

    text = dot(repeated(grow))
    assert text.startswith("digraph segment_1 {\n") and text.endswith("}\n")
    assert 'n0 [label="A\\nwork, stream 7, 1 operations, 0.0 µs", fillcolor=palegreen];' in text
    assert "n0 -> n1 [style=dashed];" in text
    assert "n1 -> n2 [style=solid];" in text
    assert "n2 -> n3 [style=dotted];" in text
    assert "fillcolor=lightcoral" in text


def test_names_cannot_leave_their_quotes() -> None:
    segment = repeated(lambda program: program.run("AB"))
    evil = msgspec.structs.replace(segment.map.nodes[0], label='x"]; n9 -> n8 [a="\\\n\x07')
    text = dot(msgspec.structs.replace(segment, map=SegmentMap(nodes=(evil,), edges=())))
    assert 'label="x\\"]; n9 -> n8 [a=\\"\\\\\\n \\nwork' in text
