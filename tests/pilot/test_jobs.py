"""Jobs and messages survive their way between the processes."""

from __future__ import annotations

import msgspec
import pytest

from cudagraph_gate.pilot.jobs import (
    DEFAULT_SEED,
    Answer,
    Done,
    Failure,
    Job,
    Message,
    ProbeJob,
    ProfileJob,
    Progress,
    ScriptJob,
    TrialJob,
    decode,
    decode_job,
    encode,
    encode_job,
)


@pytest.mark.parametrize(
    "job",
    [
        ProfileJob(folder="f", workload="w.py", device="auto", shapes=None),
        ScriptJob(folder="f", script="s.py", arguments=("--steps", "20", "ä b")),
        ScriptJob(
            folder="f",
            script="s.py",
            arguments=(),
            duration_s=2.5,
            iterations=3,
            range_name="é",
            trace_children=True,
        ),
        ProfileJob(folder="f", workload="w.py", device="cuda", shapes="b1", iterations=3, range_name="step"),
        TrialJob(folder="f", workload="w.py", device="simulated", shapes="", shape=None, seed=3),
        TrialJob(folder="f", workload="w.py", device="cuda", shapes="a=1x2", shape="a"),
        ProbeJob(device="cuda"),
    ],
)
def test_a_job_is_read_as_it_was_written(job: Job) -> None:
    assert decode_job(encode_job(job)) == job


@pytest.mark.parametrize(
    "message",
    [
        Progress(text="default: warm up", phase="warm_up", done=2, total=15),
        Answer(values={"shapes": ["b1", "b8"]}),
        Failure(exit_code=21, what="two\nlines", where="w.py:3", hint=None, traceback="Traceback\n"),
        Done(),
    ],
)
def test_a_message_is_one_line(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


def test_jobs_have_the_same_seed_unless_told_otherwise() -> None:
    assert ProfileJob(folder="", workload="", device="auto", shapes=None).seed == DEFAULT_SEED


def test_what_is_no_job_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_job('{"type":"format_disk"}')
