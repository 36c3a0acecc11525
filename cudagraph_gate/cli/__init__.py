"""The command line: parse, call one function, render, exit."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from cudagraph_gate import __version__
from cudagraph_gate.cli.asked import attack_asked, options_asked
from cudagraph_gate.cli.options import (
    Definitions,
    Device,
    DotFile,
    FlushL2,
    Json,
    Limit,
    PerfettoFile,
    PolicyFile,
    Quick,
    RangeName,
    RunFolder,
    Rungs,
    Scenarios,
    Shapes,
    Skip,
    TraceFile,
    Workload,
)
from cudagraph_gate.errors import CgateError, ExitCode, UsageError

if TYPE_CHECKING:
    from cudagraph_gate.evidence import Run
    from cudagraph_gate.model import Verdict
    from cudagraph_gate.pipeline import Options

COMMANDS_WITH_SHAPES: Final = ("profile", "pilot", "run")

app = typer.Typer(
    name="cgate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Decide, with evidence, whether CUDA Graphs are worth it and safe for a GPU workload.\n\n"
    "Start with: [bold]cgate run workload.py[/bold]. Without a GPU, everything runs on a simulated device "
    "and says so.",
    epilog="Exit codes: 0 GO, 10 NO-GO, 11 CONDITIONAL, 12 INCONCLUSIVE, 2 usage, 20 no device, "
    "21 the workload failed, 22 unreadable evidence, 130 interrupted, 1 a bug.",
)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"cgate {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of ``cgate`` itself."""


@app.command(epilog="Example: cgate doctor --json")
def doctor(device: Device = "auto", as_json: Json = False) -> None:
    """Say what this machine can measure, which graph features work, and its fingerprint."""
    from cudagraph_gate import pipeline
    from cudagraph_gate.report import machine, terminal
    from cudagraph_gate.report.doctor import print_examination

    with terminal.progress() as report:
        found = pipeline.examine(options_asked(device, None, 120.0, report))
    if as_json:
        terminal.print_json(machine.examination(found))
        return
    with terminal.result() as console:
        print_examination(console, found)


@app.command(
    epilog="Examples: cgate profile workload.py; cgate profile train.py --range step --iterations 50 -- "
    "--steps 200; cgate profile --from trace.json.gz --perfetto timeline.json",
)
def profile(
    workload: Annotated[
        Path | None, typer.Argument(help="A module with build and inputs, or any Python script.")
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of a script, after --.")] = None,
    source: TraceFile = None,
    device: Device = "auto",
    shapes: Shapes = None,
    duration: Annotated[
        float | None, typer.Option(min=0.1, help="Record so many seconds, then end the script.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Record so many requests; of a script, ranges named by --range.")
    ] = None,
    range_name: RangeName = "",
    trace_children: Annotated[
        bool, typer.Option("--trace-children", help="Record the Python processes that a script starts, too.")
    ] = False,
    definitions: Definitions = "cgate",
    perfetto: PerfettoFile = None,
    dot: DotFile = None,
    time_limit: Limit = 300.0,
    as_json: Json = False,
) -> None:
    """Record the normal path, or read another recorder's trace, and say where the time goes."""
    from cudagraph_gate import pipeline
    from cudagraph_gate.report import terminal

    _check_outputs(source, perfetto, dot)
    if definitions not in ("cgate", "hta"):
        raise UsageError(f"--definitions {definitions} is unknown", hint="use cgate or hta")
    extent = {"duration_s": duration, "iterations": iterations, "trace_children": trace_children}
    interrupted = None
    with terminal.progress() as report:
        options = options_asked(device, shapes, time_limit, report, range_name=range_name, **extent)
        try:
            done = _profiled(workload, tuple(arguments or ()), source, options)
        except pipeline.Interrupted as early:
            done, interrupted = early.run, early
    _show_profile(done, definitions, as_json)
    _write_views(done, perfetto, dot)
    terminal.say(f"evidence: {done.folder}")
    if interrupted:
        raise interrupted


def _profiled(
    workload: Path | None, arguments: tuple[str, ...], source: Path | None, options: Options
) -> Run:
    from cudagraph_gate import pipeline

    if source is None:
        return pipeline.profile(_named(workload), arguments, options)
    _refuse_beside_trace(workload, options)
    return pipeline.import_trace(source, options)


def _named(workload: Path | None) -> Path:
    if workload is None:
        raise UsageError("name a workload, a script, or --from FILE", hint="cgate profile --help shows how")
    return workload


def _refuse_beside_trace(workload: Path | None, options: Options) -> None:
    """What records something has no meaning for a trace that is recorded already."""
    given = {
        "a workload": workload is not None,
        "--device": options.device != "auto",
        "--shapes": options.shapes is not None,
        "--duration": options.duration_s is not None,
        "--iterations": options.iterations is not None,
        "--trace-children": options.trace_children,
    }
    for name, there in given.items():
        if there:
            raise UsageError(f"--from reads a finished trace: {name} does not go with it")


def _check_outputs(source: Path | None, *outputs: Path | None) -> None:
    """Raise UsageError, before anything is measured, for files that can't be written or must not be."""
    taken = [] if source is None else [source.resolve()]
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise UsageError("would be overwritten", where=str(path), hint="name another file")
        if not path.resolve().parent.is_dir():
            raise UsageError("its folder does not exist", where=str(path), hint="make it, or name another")
        taken.append(path.resolve())


def _show_profile(run: Run, definitions: str, as_json: bool) -> None:
    from cudagraph_gate import pipeline
    from cudagraph_gate.report import machine, print_evidence, print_hta, print_next_command, terminal

    evidence = pipeline.collect_evidence(run)
    hta = pipeline.hta_view(run) if definitions == "hta" else None
    if as_json:
        terminal.print_json(machine.profile(evidence, hta))
        return
    with terminal.result() as console:
        print_evidence(console, evidence)
        if hta is not None:
            print_hta(console, hta)
        print_next_command(console, evidence)


def _write_views(run: Run, perfetto: Path | None, dot: Path | None) -> None:
    from cudagraph_gate import pipeline
    from cudagraph_gate.report import graph_map_dot, terminal

    if perfetto is not None:
        pipeline.write_perfetto_view(run, perfetto)
        terminal.say(f"written: {perfetto} (open it in ui.perfetto.dev)")
    if dot is not None:
        pipeline.write_map(run, dot, graph_map_dot)
        terminal.say(f"written: {dot}")


@app.command(
    epilog="Examples: cgate pilot workload.py; cgate pilot --shapes; "
    "cgate pilot workload.py --shapes b1=1x128,b8=8x128",
)
def pilot(
    workload: Annotated[Path | None, typer.Argument(help="The newest run's workload by default.")] = None,
    run: RunFolder = None,
    device: Device = "auto",
    shapes: Shapes = None,
    policy: PolicyFile = None,
    rungs: Rungs = 6,
    scenarios: Scenarios = None,
    skip: Skip = None,
    quick: Quick = False,
    flush_l2: FlushL2 = False,
    time_limit: Limit = 300.0,
    as_json: Json = False,
) -> None:
    """Capture, replay and compare a graph beside the untouched normal path."""
    from cudagraph_gate import pipeline
    from cudagraph_gate.gates import load_policy
    from cudagraph_gate.report import machine, print_trial, terminal

    limits = load_policy(policy, Path.cwd())
    tried = {"rungs": rungs, "flush_l2": flush_l2, **attack_asked(scenarios, skip, quick)}
    with terminal.progress() as report:
        options = options_asked(device, shapes, time_limit, report, **tried)
        chosen = pipeline.run_for_pilot(workload, run, options)
        pipeline.pilot(chosen, options, limits)
    evidence = pipeline.collect_evidence(chosen)
    if as_json:
        terminal.print_json(machine.trial(evidence))
    else:
        with terminal.result() as console:
            print_trial(console, evidence)
    terminal.say(f"evidence: {chosen.folder}; next: cgate verdict")


@app.command(epilog="Examples: cgate verdict; cgate verdict --json --run .cgate/runs/NAME")
def verdict(run: RunFolder = None, policy: PolicyFile = None, as_json: Json = False) -> None:
    """Judge the newest evidence by the seven gates; the exit code tells scripts."""
    from cudagraph_gate.gates import exit_code

    _chosen, judged = _judge(run, policy)
    _print_verdict(judged, as_json)
    raise typer.Exit(exit_code(judged))


@app.command(epilog="Examples: cgate report; cgate report --html report.html --perfetto timeline.json")
def report(
    run: RunFolder = None,
    policy: PolicyFile = None,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page with pictures.")] = None,
    perfetto: PerfettoFile = None,
    dot: DotFile = None,
) -> None:
    """Show everything that a run found, or write it to files."""
    from cudagraph_gate import pipeline
    from cudagraph_gate.report import print_evidence, print_verdict, terminal, write_page

    _check_outputs(None, html, perfetto, dot)
    chosen, judged = _judge(run, policy)
    found = pipeline.collect_evidence(chosen)
    if html is not None:
        write_page(html, found, judged)
        terminal.say(f"written: {html}")
    _write_views(chosen, perfetto, dot)
    if html or perfetto or dot:
        return
    with terminal.result() as console:
        print_evidence(console, found, details=True)
        if chosen.info().mode == "module":
            print_verdict(console, judged)


@app.command(epilog="Examples: cgate run workload.py; cgate run workload.py --shapes --json")
def run(
    workload: Workload,
    device: Device = "auto",
    shapes: Shapes = None,
    policy: PolicyFile = None,
    rungs: Rungs = 6,
    scenarios: Scenarios = None,
    skip: Skip = None,
    quick: Quick = False,
    flush_l2: FlushL2 = False,
    time_limit: Limit = 300.0,
    as_json: Json = False,
) -> None:
    """Profile, pilot and verdict in one go."""
    from cudagraph_gate import pipeline
    from cudagraph_gate.gates import exit_code, load_policy
    from cudagraph_gate.report import print_evidence, terminal

    limits = load_policy(policy, Path.cwd())
    tried = {"rungs": rungs, "flush_l2": flush_l2, **attack_asked(scenarios, skip, quick)}
    with terminal.progress() as show:
        options = options_asked(device, shapes, time_limit, show, **tried)
        done, judged = pipeline.run_all(workload, limits, options)
    if not as_json:
        with terminal.result() as console:
            print_evidence(console, pipeline.collect_evidence(done))
    _print_verdict(judged, as_json)
    terminal.say(f"evidence: {done.folder}")
    raise typer.Exit(exit_code(judged))


def _judge(folder: Path | None, policy: Path | None) -> tuple[Run, Verdict]:
    """The named run, else the newest, and its verdict; says which run that is."""
    from cudagraph_gate import evidence, pipeline
    from cudagraph_gate.gates import load_policy
    from cudagraph_gate.report import terminal

    chosen = evidence.open_run(folder) if folder else evidence.newest_run()
    terminal.say(f"judging {chosen.name}, a run of {chosen.info().workload}")
    return chosen, pipeline.verdict(chosen, load_policy(policy, Path.cwd()))


def _print_verdict(judged: Any, as_json: bool) -> None:
    from cudagraph_gate.report import print_verdict, terminal

    if as_json:
        terminal.print_json(judged)
        return
    with terminal.result() as console:
        print_verdict(console, judged)


def with_bare_shapes(arguments: Sequence[str]) -> list[str]:
    """``--shapes`` may stand bare, last or before a workload's name: it then gets an empty value."""
    if not arguments or arguments[0] not in COMMANDS_WITH_SHAPES:
        return list(arguments)
    ours, rest = list(arguments), []
    if "--" in ours:
        place = ours.index("--")
        ours, rest = ours[:place], ours[place:]
    spelled: list[str] = []
    for index, argument in enumerate(ours):
        following = ours[index + 1] if index + 1 < len(ours) else "-"
        bare = argument == "--shapes" and (following.startswith("-") or following.endswith(".py"))
        spelled.append("--shapes=" if bare else argument)
    return spelled + rest


def main() -> None:
    """Entry point of ``cgate``: every failure becomes one line on standard error and an exit code."""
    _replace_closed_streams()
    try:
        code = app(with_bare_shapes(sys.argv[1:]), prog_name="cgate", standalone_mode=False)
    except CgateError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:  # before typer watches for it
        code = ExitCode.INTERRUPTED
    except Exception as error:
        complaint = getattr(error, "format_message", None)  # how typer tells of a wrong command line
        if complaint is None:
            raise
        if not complaint():  # no command at all: the help was shown
            sys.exit(ExitCode.USAGE)
        _fail(f"{complaint()} (cgate --help shows how)", ExitCode.USAGE)
    if code == ExitCode.INTERRUPTED:
        _fail("interrupted; what was recorded until then, if anything, is kept", ExitCode.INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _replace_closed_streams() -> None:
    """A caller may have closed standard output or error: what is written to it then goes nowhere."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.set_inheritable(number, True)  # worker processes need it too
            setattr(sys, name, os.fdopen(number, "w"))


def _fail(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"cgate: {text}\n")
    sys.exit(code)
