"""A bounded run of the simulation, and that its checkers find each bug on purpose. More: python -m tests.sim --help."""

from contextlib import closing

import pytest

from tests.sim.canaries import CANARIES, planted
from tests.sim.episode import Episode, Failed

SEEDS = (1, 2, 3)
CANARY_SEEDS = range(1, 41)     # at most
CANARY_TROUBLE_S = 12.0


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_must_hold_holds(seed: int) -> None:
    with closing(Episode(seed, 20.0)) as episode:
        counts = episode.run().counts
    assert counts["delivered"] > 1_000 and counts["acked"] > 500 and counts["lags compared"] > 100


@pytest.mark.parametrize("name", sorted(CANARIES))
def test_a_planted_bug_is_found(name: str) -> None:
    canary = CANARIES[name]
    with planted(name):
        for seed in CANARY_SEEDS:
            with closing(Episode(seed, CANARY_TROUBLE_S, canary.only, canary.fsync)) as episode:
                try:
                    episode.run()
                except Failed as failed:
                    assert "AssertionError" in failed.why, failed     # found by a checker, not by falling over
                    return
    pytest.fail(f"{name}: not found in {len(CANARY_SEEDS)} seeds")


def test_a_seed_tells_the_same_story_twice() -> None:
    stories = []
    for _ in range(2):
        with closing(Episode(5, 6.0)) as episode:
            stories.append((episode.run().counts, episode.events))
    assert stories[0] == stories[1]
