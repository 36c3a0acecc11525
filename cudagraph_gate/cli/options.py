"""Arguments and options that several commands take, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Workload = Annotated[Path, typer.Argument(help="Python module with build(shape) and inputs(shape, seed).")]
Device = Annotated[str, typer.Option(help="auto (the GPU if there is one), cuda or simulated.")]
Shapes = Annotated[
    str | None,
    typer.Option(
        metavar="[LIST]",
        help="Bare: every declared shape. Or names and new shapes: b1,b8=8x128; or a CSV of arrivals.",
    ),
]
RunFolder = Annotated[Path | None, typer.Option("--run", help="Run folder; the newest by default.")]
PolicyFile = Annotated[Path | None, typer.Option(help="TOML file with the limits, as in \\[tool.cgate].")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Read a torch.profiler JSON, an Nsight Systems SQLite file, or a folder with the JSON files of "
        "several ranks. Needs no GPU.",
    ),
]
RangeName = Annotated[
    str,
    typer.Option("--range", metavar="NAME", help="NVTX range that is one request (also numbered: NAME#12)."),
]
Definitions = Annotated[
    str, typer.Option(help="cgate, or hta: idle as HolisticTraceAnalysis divides it, too.")
]
PerfettoFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the timeline for ui.perfetto.dev.")
]
DotFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the graph's map, before a trial the best segment's, for Graphviz."
    ),
]
Limit = Annotated[float, typer.Option(min=1, help="Seconds without progress after which a worker is killed.")]
FlushL2 = Annotated[
    bool, typer.Option("--flush-l2", help="Overwrite the GPU's L2 cache before each timed request.")
]
Rungs = Annotated[
    int, typer.Option(min=1, max=6, metavar="N", help="Highest rung of the ladder that is tried, 1 to 6.")
]
Scenarios = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Hard scenarios to run, by name, with commas between; all by default."),
]
Skip = Annotated[
    str | None,
    typer.Option(
        metavar="LIST", help="Hard scenarios to leave out, or all; what is left out leaves its gate unknown."
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Only the hard scenarios that find most; never enough for GO.")
]
