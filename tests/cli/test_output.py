"""What goes to standard output, in which form; everything else goes to standard error."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from command import LONG_KERNELS, Recorded, runs, without_gpu, write
from command import cgate as cgate_alone
from served import cgate

from cudagraph_gate.model import (
    Diagnosis,
    Fingerprint,
    GraphMap,
    GraphMapEdge,
    GraphMapNode,
    GraphRole,
    ProfileTimes,
    Verdict,
)
from cudagraph_gate.records import Phase, Record
from cudagraph_gate.report.console_pieces import SIMULATED_LINE

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
GATES = ["evidence", "segment", "environment", "lifecycle", "hard scenarios", "comparison", "drill"]
ESCAPE = re.compile(r"\x1b")
TEXT_COMMANDS = ("verdict", "report", "doctor")


@pytest.fixture(scope="session")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose names are all long."""
    folder = tmp_path_factory.mktemp("long")
    path = write(folder, *LONG_KERNELS, name=f"model_{'long_' * 20}.py")
    text = path.read_text()
    for short, word in (('"halve"', "kernel_"), ('"b1"', "shape_")):
        text = text.replace(short, f'"{word * 20}"')
    path.write_text(text.replace(" x)", f" {'x_' * 40})").replace("(x)", f"({'x_' * 40})"))
    assert cgate(folder, "run", path.name).code == 12
    return folder


# --- JSON -----------------------------------------------------------------------------------------


def test_the_verdict_has_its_documented_fields(original: Recorded):
    found = json.loads(original.ended.out)
    assert list(found) == list(Verdict.__struct_fields__)
    assert [gate["number"] for gate in found["gates"]] == [1, 2, 3, 4, 5, 6, 7]
    assert [gate["name"] for gate in found["gates"]] == GATES
    assert (found["schema_version"], found["verdict"]) == (1, "INCONCLUSIVE")
    assert found["rehearsal"] == "INCONCLUSIVE"
    assert found["fingerprint"]["identity"]["shapes"]
    assert found["policy"]["min_gain"] == 0.05


def test_run_and_verdict_print_the_same_object(original: Recorded):
    again = cgate(original.folder, "verdict", "--json")
    named = cgate(original.folder, "verdict", "--json", "--run", str(original.run))
    assert again.out == named.out == original.ended.out
    assert again.err == f"judging {original.run.name}, a run of model.py\n"


def test_the_verdict_file_holds_it_too(original: Recorded):
    assert (original.run / "verdict.json").read_text() == original.ended.out


@pytest.fixture(scope="session")
def printed(
    original_profile: Recorded, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, object]]:
    """What each other command prints with ``--json``."""
    folder = tmp_path_factory.mktemp("json") / "copy"
    shutil.copytree(original_profile.folder, folder)
    found = {
        "profile": original_profile.ended,
        "pilot": cgate(folder, "pilot", "--shapes", "b8", "--json"),
        "doctor": cgate(folder, "doctor", "--json"),
    }
    assert {ended.code for ended in found.values()} == {0}
    return {name: json.loads(ended.out) for name, ended in found.items()}


FIELDS = {
    "profile": ["schema_version", "workload", "run", "diagnosis", "profile", "fingerprint", "hta"],
    "pilot": ["schema_version", "workload", "run", "simulated", "records"],
    "doctor": ["schema_version", "device", "simulated", "features", "advice", "fingerprint"],
}


@pytest.mark.parametrize("command", FIELDS)
def test_the_other_objects_have_their_documented_fields(printed: dict[str, dict[str, object]], command: str):
    assert list(printed[command]) == FIELDS[command]
    assert printed[command]["schema_version"] == 1


def test_the_parts_are_those_of_the_run_folder(printed: dict[str, dict[str, object]]):
    assert msgspec.convert(printed["profile"]["diagnosis"], Diagnosis).simulated
    assert msgspec.convert(printed["profile"]["profile"], ProfileTimes).shape == "b1"
    assert (
        msgspec.convert(printed["doctor"]["fingerprint"], Fingerprint).identity["device"]
        == "simulated device"
    )
    records = msgspec.convert(printed["pilot"]["records"], list[Record])
    assert {getattr(record, "shape", "b8") for record in records} == {"b8"}


def names_in(value: object) -> set[str]:
    """Every field name of an object and what it holds, but for the free names of maps."""
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    if not isinstance(value, dict):
        return set()
    free = (
        "identity",
        "conditions",
        "missing",
        "kinds",
        "kernels",
        "by_name",
        "by_cause",
        "causes",
        "input_bytes",
    )
    free += ("measured", "threshold", "policy", "input_digests", "shape_values")
    return set(value).union(*(names_in(part) for name, part in value.items() if name not in free))


@pytest.mark.parametrize("kind", Record.__args__, ids=lambda kind: kind.__name__)
def test_every_record_is_documented_in_a_row_of_its_own(kind: type[msgspec.Struct]):
    tag = kind.__struct_config__.tag
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| `{tag}` |")]
    assert len(rows) == 1
    fields = {field.encode_name for field in msgspec.structs.fields(kind)} - {"method"}
    assert fields <= set(re.findall(r"`(\w+)`", rows[0]))


def test_the_phases_and_the_parts_of_a_map_are_documented():
    documented = set(re.findall(r"`(\w+)`", DOCUMENT.read_text()))
    assert {*Phase, *GraphRole} <= documented
    for kind in (GraphMap, GraphMapNode, GraphMapEdge):
        assert set(kind.__struct_fields__) <= documented


def test_every_field_is_documented(original: Recorded, printed: dict[str, dict[str, object]]):
    documented = set(re.findall(r"`(\w+)`", DOCUMENT.read_text()))
    for found in (json.loads(original.ended.out), *printed.values()):
        assert names_in(found) <= documented


# --- text -----------------------------------------------------------------------------------------


def test_a_json_result_stands_alone_and_the_rest_is_on_standard_error(original: Recorded):
    assert original.ended.err.splitlines()[0] == "loading the workload"
    assert original.ended.complaint == f"evidence: .cgate/runs/{original.run.name}"
    assert original.ended.out.endswith("}\n")


@pytest.mark.parametrize("command", TEXT_COMMANDS)
def test_text_has_80_columns_no_colour_and_says_that_it_is_simulated(long_names: Path, command: str):
    ended = cgate(long_names, command)
    assert not ESCAPE.search(ended.out + ended.err)
    assert max(len(line) for line in ended.out.splitlines()) <= 80
    assert SIMULATED_LINE in ended.out


def test_a_narrow_terminal_gets_narrow_tables(original: Recorded):
    ended = cgate_alone(original.folder, "verdict", env=without_gpu(COLUMNS="60"))
    assert max(len(line) for line in ended.out.splitlines()) <= 60


def test_the_report_says_it_above_the_evidence_and_above_the_verdict_only(original: Recorded):
    lines = cgate(original.folder, "report").out.splitlines()
    places = [number for number, line in enumerate(lines) if line == SIMULATED_LINE]
    assert places == [0, lines.index("INCONCLUSIVE  model.py") - 1]


def test_the_report_as_a_page(original: Recorded, tmp_path: Path):
    page = tmp_path / "a page.html"
    ended = cgate(original.folder, "report", "--html", str(page), "--run", str(original.run))
    assert (ended.code, ended.out, ended.complaint) == (0, "", f"written: {page}")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert SIMULATED_LINE in page.read_text()


def test_a_policy_changes_the_verdict(recorded: Recorded):
    (recorded.folder / "strict.toml").write_text("min_gain = 0.99\n")
    strict = json.loads(cgate(recorded.folder, "verdict", "--json", "--policy", "strict.toml").out)
    assert (strict["verdict"], strict["rehearsal"]) == ("INCONCLUSIVE", "NO-GO")
    assert strict["policy"]["min_gain"] == 0.99
    (recorded.folder / "pyproject.toml").write_text("[tool.cgate]\nmin_gain = 0.99\n")
    assert json.loads(cgate(recorded.folder, "verdict", "--json").out) == strict
    assert len(runs(recorded.folder)) == 1


def test_doctor_says_why_it_took_the_simulated_device(tmp_path: Path):
    advice = json.loads(cgate(tmp_path, "doctor", "--json").out)["advice"]
    assert advice[0].startswith("no GPU can be used here: ")
    assert advice[0].rpartition(" here: ")[2]
    asked = json.loads(cgate(tmp_path, "doctor", "--device", "simulated", "--json").out)["advice"]
    assert not any("no GPU" in text for text in asked)
    assert cgate(tmp_path, "doctor").out.count(SIMULATED_LINE) == 1
