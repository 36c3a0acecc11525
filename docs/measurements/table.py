"""The Markdown table of a folder of verdicts: ``table.py docs/measurements/h200``."""

import json
import sys
from pathlib import Path

ORDER = (
    "launch_bound_chain",
    "explicit_chain",
    "own_graph_chain",
    "whole_request_chain",
    "traffic_mix",
    "compute_bound_gemm",
    "sync_inside",
    "cuda_core_explicit",
    "torch_gpt2",
    "torch_resnet50",
    "torch_huge_input",
    "torch_bert",
    "torch_decode",
    "torch_training",
    "torch_compile",
    "torch_mixed",
    "torch_moe",
    "cupy_jacobi",
    "numba_stencil",
    "mlp64",
    "torch_resnet50_b1",
    "gemm_8192",
)
HEAD = (
    "sample",
    "verdict",
    "predicted gain",
    "normal P50 µs",
    "graph P50 µs",
    "speed-up (95 %)",
    "nodes",
    "why",
)


def row(name: str, verdict: dict) -> tuple[str, ...]:
    """One sample's cells."""
    evidence, segment, comparison = (verdict["gates"][number - 1] for number in (1, 2, 6))
    measured = evidence["measured"]
    predicted = (
        f"{measured['gain_low']:.0%} to {measured['gain_high']:.0%}" if "gain_low" in measured else "–"
    )
    p50 = comparison["measured"].get("p50")
    times = ("–", "–", "–")
    if p50:
        speed_up = f"{1 / p50['ratio']:.2f}× ({1 / p50['high']:.2f} to {1 / p50['low']:.2f})"
        times = (f"{p50['normal_ns'] / 1000:,.0f}", f"{p50['graph_ns'] / 1000:,.0f}", speed_up)
    nodes = str(segment["measured"].get("nodes", "–"))
    return (name, verdict["verdict"], predicted, *times, nodes, why(verdict))


def why(verdict: dict) -> str:
    """The failing gates with their codes, else that the untried ones are open."""
    failing = [
        f"gate {gate['number']} {gate['code']}" for gate in verdict["gates"] if gate["status"] == "fail"
    ]
    unknown = [str(gate["number"]) for gate in verdict["gates"] if gate["status"] == "unknown"]
    return ", ".join(failing) or f"gates {', '.join(unknown)} not tried"


def main(folder: Path) -> None:
    """Print the table."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for name in ORDER:
        path = folder / f"{name}.json"
        if path.exists():
            lines.append(row(name, json.loads(path.read_text())))
    for cells in lines:
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
