from hypothesis import given
from hypothesis import strategies as st

from gq_groupd.assignment import assign

MEMBERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


def test_ranges_at_first() -> None:
    target = assign({1: [0, 1, 2, 3, 4]}, {1: ["b", "a"]}, {})
    assert target == {(1, 0): "a", (1, 1): "a", (1, 2): "a", (1, 3): "b", (1, 4): "b"}


def test_the_odd_partitions_of_many_topics_are_spread() -> None:
    target = assign({t: [0] for t in range(4)}, {t: ["a", "b"] for t in range(4)}, {})
    assert sorted(target.values()) == ["a", "a", "b", "b"]


def test_more_members_than_partitions_and_one_leaves() -> None:
    target = assign({1: [0, 1]}, {1: ["a", "b", "c"]}, {})
    assert target == {(1, 0): "a", (1, 1): "b"}
    assert assign({1: [0, 1]}, {1: ["b", "c"]}, target) == {(1, 0): "c", (1, 1): "b"}


@given(st.dictionaries(st.integers(1, 3), st.integers(1, 9), max_size=3), MEMBERS, MEMBERS)
def test_balanced_sticky_and_stable(counts: dict[int, int], before: list[str], after: list[str]) -> None:
    partitions = {t: list(range(n)) for t, n in counts.items()}
    first = assign(partitions, dict.fromkeys(partitions, before), {})
    second = assign(partitions, dict.fromkeys(partitions, after), first)
    assert assign(partitions, dict.fromkeys(partitions, after), second) == second
    for topic, numbers in partitions.items():
        owned = [sum(second.get((topic, p)) == m for p in numbers) for m in after]
        assert sum(owned) == (len(numbers) if after else 0)
        assert not owned or max(owned) - min(owned) <= 1
        # No more moves than leavers and new shares force.
        moved = sum(first[topic, p] != second[topic, p] for p in numbers if before and after)
        if before and after:
            share = len(numbers) // len(after)
            stayed = [m for m in after if m in before]
            kept = sum(min(share, sum(first[topic, p] == m for p in numbers)) for m in stayed)
            assert moved <= len(numbers) - kept
