"""What index files say against what the log says: by offset and by time, whole, lagging, missing, torn."""

import random
from array import array
from pathlib import Path

import pytest

from gq_proto import codec
from gq_spark.disk import Disk
from gq_spark.layout import find
from gq_spark.log import Log, position_before, position_behind
from tests.unit.gq_logd.world import START_US, World, batch_of
from tests.unit.gq_spark.reads import segments, settle, without_derived


def opened(world: World) -> Log:
    [place] = find(Disk(), [world.folder], ["t"])
    return Log(Disk(), place)


@pytest.fixture(params=["append", "create"])
def world(tmp_path, request):
    chance = random.Random(request.param)
    made = World(tmp_path, settings={"segment_bytes": 9_000, "timestamp_type": request.param})
    for _ in range(120):
        early = chance.randint(0, 3_000_000) if request.param == "create" else 0
        made.publish(batch_of(b"v" * chance.choice([10, 700]), priorities=(chance.randint(0, 4),), timestamp=made.wall_us - early))
        made.tick(chance.choice([0.01, 0.7, 2.5]))
    settle(made)
    yield made
    made.stop()


def test_a_scan_finds_what_the_files_say(world):
    with_files = opened(world)
    known = [with_files.facts(part) for part in with_files.segments]
    for missing in ((".runs",), (".index", ".timeindex", ".runs")):
        without_derived(world, missing)
        log = opened(world)
        for part, before in zip(log.segments, known, strict=True):
            facts = log.facts(part)
            assert (facts.index, facts.runs, facts.position, facts.next_offset) == (
                before.index, before.runs, before.position, before.next_offset)
            assert log.controls(part) == with_files.controls(part)


def test_torn_and_lagging_files_are_made_up_for(world):
    whole = opened(world)
    known = [(whole.facts(part).runs, whole.facts(part).next_offset) for part in whole.segments]
    for number, path in enumerate(segments(world)):
        for suffix in (".index", ".timeindex", ".runs"):
            file = path.with_suffix(suffix)
            if file.exists():
                raw = file.read_bytes()
                file.write_bytes(raw[: len(raw) - number % 40])
    log = opened(world)
    assert [(log.facts(part).runs, log.facts(part).next_offset) for part in log.segments] == known
    assert log.valid_end == world.partition.log.end


def test_positions_are_record_boundaries_around_the_offset(world):
    log = opened(world)
    for part in log.segments:
        facts, raw = log.facts(part), Path(part.path()).read_bytes()
        for offset in range(part.base, facts.next_offset + 1):
            before, behind = (position_before(facts.index, part.base, offset),
                              position_behind(facts.index, part.base, offset, facts.position))
            first = codec.scan(raw[before:]).first_offset
            assert first <= offset
            assert behind == facts.position or codec.scan(raw[behind:]).first_offset >= offset
            assert codec.scan(raw[before:behind]).reason == "end"


@pytest.mark.parametrize("derived", [True, False])
def test_by_time(world, derived):
    if not derived:
        without_derived(world)
    log, end = opened(world), world.partition.log.end
    stamps = []
    for part in log.segments:
        found = codec.columns(Path(part.path()).read_bytes(), without=0)
        stamps += zip(array("q", found.timestamp), array("q", found.offset), strict=True)
    for step in range(0, 200, 3):
        moment = START_US + step * 1_000_000 + random.Random(step).randint(-1, 1)
        low = log.not_before(moment, end)
        assert all(stamp < moment for stamp, offset in stamps if offset < low)
        first = next((offset for stamp, offset in stamps if stamp >= moment), end)
        assert log.first_at(moment, end) == first
        reached = log.all_after(moment, end)
        assert reached == end or max(stamp for stamp, offset in stamps if offset <= reached) >= moment
        assert low <= first <= reached


def test_an_empty_partition(tmp_path):
    made = World(tmp_path)
    settle(made)
    log = opened(made)
    assert (log.start, log.valid_end, log.first_at(START_US, 0)) == (0, 0, 0)
    made.stop()
