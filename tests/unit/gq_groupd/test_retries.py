from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from gq_groupd.retries import Attempts, Waiting, backoff_ms
from gq_proto.messages import TopicConfig

SETS = st.sets(st.integers(0, 40), min_size=1)


def test_backoff_doubles_up_to_the_maximum() -> None:
    assert [backoff_ms(TopicConfig(), n) for n in (1, 2, 3, 4, 7, 8, 10_000)] == [1000, 2000, 4000, 8000, 60000, 60000, 60000]


@given(st.lists(st.tuples(SETS, st.integers(1, 5)), max_size=12))
def test_attempts_against_a_dict(ops: list[tuple[set[int], int]]) -> None:
    attempts, twin = Attempts(), {}
    for offsets, level in ops:
        if level == 5:
            attempts.forget(BitMap64(offsets))
            twin = {o: n for o, n in twin.items() if o not in offsets}
        else:
            attempts.set(BitMap64(offsets), level)
            twin.update(dict.fromkeys(offsets, level))
        assert {o: attempts.of(o) for o in range(41)} == {o: twin.get(o, 0) for o in range(41)}
        assert set(attempts.any) == set(twin) and all(attempts.levels.values())


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "due"]), SETS, st.integers(1, 50)), max_size=20))
def test_waiting_against_a_dict(ops: list[tuple[str, set[int], int]]) -> None:
    waiting, twin, now = Waiting(), {}, 0
    for op, offsets, ms in ops:
        if op == "add":
            offsets -= twin.keys()
            waiting.add(BitMap64(offsets), now, now * 1000, ms)
            twin.update(dict.fromkeys(offsets, now + ms))
        elif op == "remove":
            waiting.remove(BitMap64(offsets))
            twin = {o: t for o, t in twin.items() if o not in offsets}
        else:
            now += ms
            assert set(waiting.take_due(now)) == {o for o, t in twin.items() if t <= now}
            twin = {o: t for o, t in twin.items() if t > now}
        assert set(waiting.all) == twin.keys()


def test_over_a_restart_the_wall_clock_never_makes_a_wait_longer() -> None:
    for jumped_us, left in ((0, 700), (-3_600_000_000, 1_000), (3_600_000_000, 0)):
        waiting = Waiting()
        waiting.add(BitMap64([1]), 0, 5_000_000, 1_000)
        waiting.restart(90, 5_300_000 + jumped_us)
        assert waiting.next_due() == 90 + left
