"""Where the policy is read from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_gate.errors import UsageError
from cudagraph_gate.gates import Policy, load_policy


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_defaults():
    policy = Policy()
    assert (policy.min_gain, policy.max_tail_regression, policy.max_cpu_regression) == (0.05, 0.05, 0.10)
    assert (policy.max_memory_bytes, policy.max_rebuild_share, policy.max_break_even_calls) == (
        2**30,
        0.05,
        10_000,
    )


def test_an_explicit_file_holds_its_keys_at_the_top_level(tmp_path: Path):
    path = write(tmp_path, "min_gain = 0.2\nmax_memory_bytes = 1024", "strict.toml")
    assert load_policy(path, tmp_path) == Policy(min_gain=0.2, max_memory_bytes=1024)


def test_an_explicit_file_may_hold_the_table(tmp_path: Path):
    path = write(tmp_path, "[project]\nname = 'x'\n[tool.cgate]\nmin_gain = 0", "other.toml")
    assert load_policy(path, tmp_path).min_gain == 0.0


def test_the_nearest_pyproject_upward_counts(tmp_path: Path):
    write(tmp_path, "[tool.cgate]\nmin_gain = 0.3")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert load_policy(None, inner).min_gain == 0.3
    write(tmp_path / "a", "[tool.other]\nx = 1")
    assert load_policy(None, inner) == Policy()


def test_an_explicit_file_wins_over_pyproject(tmp_path: Path):
    write(tmp_path, "[tool.cgate]\nmin_gain = 0.3")
    assert load_policy(write(tmp_path, "min_gain = 0.1", "p.toml"), tmp_path).min_gain == 0.1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_gian = 0.1", "unknown policy key 'min_gian'; did you mean min_gain?"),
        ("colour = 1", "known keys: min_gain"),
        ("min_gain = 'much'", "min_gain must be a number, not 'much'"),
        ("min_gain = true", "min_gain must be a number, not True"),
        ("max_memory_bytes = 1.5", "max_memory_bytes must be a whole number, not 1.5"),
        ("min_gain = 1.5", "min_gain must be between 0 and 1, not 1.5"),
        ("min_gain = nan", "min_gain must be between 0 and 1, not nan"),
        ("max_break_even_calls = 0", "max_break_even_calls must be between 1"),
        ("max_memory_bytes = -1", "max_memory_bytes must be between 0"),
        ("tool = 3", "[tool] is not a table"),
        ("tool.cgate = 3", "[tool.cgate] is not a table"),
        ("min_gain = 0.1\nmin_gain = 0.2", "line 2"),
        ("min_gain = ", "line 1"),
    ],
)
def test_a_wrong_policy_is_refused_with_file_and_reason(tmp_path: Path, text: str, message: str):
    path = write(tmp_path, text, "p.toml")
    with pytest.raises(UsageError) as caught:
        load_policy(path, tmp_path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="No such file"):
        load_policy(tmp_path / "none.toml", tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "p.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        load_policy(path, tmp_path)
