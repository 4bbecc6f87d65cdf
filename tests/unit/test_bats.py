"""The shell's tests can fail. bats goes by `set -e`, which passes over what fails on the left of `&&` and what is behind `!`."""

import re
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "cli").glob("*.bats"))
PASSED_OVER = re.compile(r"\s+(!\s|(\[|\(\().*(\]|\)\)) && (\[|\(\())")


def blind(text: str) -> list[str]:
    """Lines whose failure nobody notices: all such but the last of a test, whose status is the test's."""
    lines = text.splitlines()
    return [line.strip() for line, following in zip(lines, [*lines[1:], "}"], strict=True)
            if PASSED_OVER.match(line) and following != "}"]


def test_what_is_blind_is_found() -> None:
    assert blind("    [ a = b ] && [ 1 = 1 ]\n    true\n}") == ["[ a = b ] && [ 1 = 1 ]"]
    assert blind("    ! true\n    ((1 > 2)) && [[ x ]]\n    run ! true\n    [ 1 = 1 ]\n}") == ["! true", "((1 > 2)) && [[ x ]]"]
    assert not blind("    ! false\n}\n    dead() { [ a ] && [ b ]; }\n    [ x ] && exit\n")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_check_is_passed_over(path: Path) -> None:
    assert not blind(path.read_text()), "put each on a line of its own"
