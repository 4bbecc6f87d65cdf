"""What every test shares: `--rewrite` for golden files, and hypothesis profiles.

Without --rewrite a golden test compares; with it the file is written anew and the diff is the review.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "golden"

# Slow machines and loaded CI must not fail a test by the clock; "deep" is for a run by hand.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden files anew instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): `text` is what tests/golden/{name} says."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--rewrite"):
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --rewrite and read what it wrote"
        assert text == path.read_text()

    return check
