"""delayed against a client that notes what it is asked: forms of names, pages, results, exit codes."""

import io
import json
import sys
import time

import pytest

from gq_client.delayed import Delayed, Page
from gq_ctl import app, delayed
from gq_proto.errors import DiskFull, TimedOut, Unavailable, UnknownTopic
from gq_proto.messages import DelayPartition, Fate


class Fake:
    routes = None

    def __init__(self):
        self.pages, self.asked, self.fates, self.stats = [], [], [], []

    def delayed(self, topic, **options):
        self.asked.append(options)
        return self.pages.pop(0)

    def cancel_delayed(self, topic, places):
        self.asked.append(places)
        return self.fates

    def delay_stats(self, topic):
        self.asked.append(topic)
        return self.stats

    def run(self, operation, timeout):
        if isinstance(self.stats, Exception):
            raise self.stats
        return self.stats

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def run(monkeypatch, capfd):
    client = Fake()
    monkeypatch.setattr(app.Settings, "client", lambda self, **options: client)

    def run(*argv, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        client.asked.clear()
        code = app.run(["delayed", *argv])
        said = capfd.readouterr()
        return code, said.out, said.err

    run.client = client
    return run


def rows(*offsets, due=None):
    return [Delayed(0, offset, due or time.time_ns() // 1000 + 90_500_000, b"k%d" % offset) for offset in offsets]


# -- list ----------------------------------------------------------------------------------

def test_pages_follow_one_another_to_the_end(run):
    run.client.pages = [Page(rows(1, 2), (7, 0, 2)), Page([], (9, 0, 5)), Page(rows(6), None)]
    code, out, _ = run("list", "t", "-o", "value")
    assert (code, out) == (0, "0:1\n0:2\n0:6\n")
    assert [asked.get("after") for asked in run.client.asked] == [None, (7, 0, 2), (9, 0, 5)]
    assert not any(asked["keys"] for asked in run.client.asked), "nobody looks at them"


def test_no_more_than_was_asked_for(run):
    run.client.pages = [Page(rows(*range(500)), (7, 0, 2)), Page(rows(501, 502), (8, 0, 3))]
    code, out, _ = run("list", "t", "--max", "502", "--partition", "0", "-o", "value")
    assert code == 0 and len(out.splitlines()) == 502
    assert [(asked["limit"], asked["partition"]) for asked in run.client.asked] == [(500, 0), (2, 0)]


def test_a_row_tells_key_due_time_and_what_remains(run):
    due = time.time_ns() // 1000 + 90_500_000
    run.client.pages = [Page([Delayed(2, 7, due, b"k"), Delayed(0, 1, due, None), Delayed(0, 2, 5, b"\xff")], None)]
    first, second, third = map(json.loads, run("list", "t")[1].splitlines())
    assert 80_000 < first.pop("remaining_ms") <= 90_500
    assert first == {"topic": "t", "partition": 2, "offset": 7, "key": "k", "due_us": due}
    assert second["key"] is None and "key_encoding" not in second
    assert third["key"] == "/w==" and third["key_encoding"] == "base64" and third["remaining_ms"] < 0, "overdue"


def test_a_table(run):
    run.client.pages = [Page(rows(7), (1, 0, 7)), Page([Delayed(1, 8, 5, b"\x1b[31m")], None)]
    code, out, err = run("list", "t", "-o", "table")
    header, first, second = out.splitlines()
    assert (code, err) == (0, "") and header.split() == ["PART", "OFFSET", "DUE", "REMAINING", "KEY"]
    assert first.split()[:2] == ["0", "7"] and first.split()[3:] == ["1m30s", "k7"]
    assert second.split()[:2] == ["1", "8"] and second.split()[3:] == ["due", "\\x1b[31m"]
    run.client.pages = [Page([], None)]
    assert run("list", "t", "-o", "table") == (0, "", "gqctl: nothing waits\n")


# -- cancel --------------------------------------------------------------------------------

@pytest.mark.parametrize(("argv", "stdin", "places"), [
    (["0:17", "2:4"], "", [(0, 17), (2, 4)]),
    (["0", "17"], "", [(0, 17)]),
    (["3", "17", "18", "5"], "", [(3, 17), (3, 18), (3, 5)]),
    (["-"], "0:17\n\n1:2 1:3\n2 4 5\n", [(0, 17), (1, 2), (1, 3), (2, 4), (2, 5)]),
    (["9:9", "-"], "0 1\n", [(9, 9), (0, 1)]),
    (["-"], "", []),
])
def test_forms_of_names(run, argv, stdin, places):
    run.client.fates = [Fate.CANCELLED] * len(places)
    code, out, _ = run("cancel", "t", *argv, stdin=stdin)
    assert code == 0 and run.client.asked == [places]
    assert [(row["partition"], row["offset"], row["result"]) for row in map(json.loads, out.splitlines())] == [
        (*place, "cancelled") for place in places]


@pytest.mark.parametrize("argv", [
    [], ["17"], ["0:"], [":1"],
    ["0:-1"], ["-1:0"], ["0:1:2"], ["0:1", "5"], ["a:1"], ["0", "x"], ["٣:1"], ["0:99999999999999999999"],
    ["1.5:2"], [""]])
def test_what_names_no_message(run, argv):
    code, out, err = run("cancel", "t", "--", *argv)
    assert (code, out) == (2, "") and run.client.asked == [] and err.count("\n") == 1 and "gqctl delayed cancel --help" in err


@pytest.mark.parametrize(("fates", "code", "results"), [
    ([Fate.CANCELLED, Fate.ALREADY_CANCELLED], 0, ["cancelled", "already_cancelled"]),
    ([Fate.CANCELLED, Fate.DELIVERED], 1, ["cancelled", "delivered"]),
    ([Fate.NONE, Fate.CANCELLED], 4, ["not_found", "cancelled"]),
    ([Fate.NONE, Fate.DELIVERED], 1, ["not_found", "delivered"]),
    ([Fate.CANCELLED, TimedOut("no answer")], 124, ["cancelled", "timed_out"]),
    ([Fate.NONE, Unavailable("no")], 3, ["not_found", "unavailable"]),
    ([Fate.NONE, DiskFull("full")], 1, ["not_found", "disk_full"]),
])
def test_results_are_told_one_by_one(run, fates, code, results):
    run.client.fates = fates
    got, out, err = run("cancel", "t", "0:1", "0:2", "-o", "value")
    assert got == code and out.split() == results
    failed = [result for result in results if "cancelled" not in result]
    assert err.count("\n") == len(failed) and all(line.startswith("gqctl: t 0:") for line in err.splitlines())


# -- stats ---------------------------------------------------------------------------------

def part(number, **more):
    return DelayPartition(5, "t", number, 3, 1, 2, 4, 6, **{"next_due_us": -1, **more})


def test_stats(run):
    run.client.stats = [part(0, next_due_us=5, lateness_p50_us=1500, lateness_p99_us=9000), part(1, loading=True)]
    first, second = map(json.loads, run("stats", "t")[1].splitlines())
    assert first == {"topic": "t", "partition": 0, "scheduled": 3, "overdue": 1, "ready": 2, "cancelled": 4, "expired": 6,
                     "next_due_us": 5, "lateness_p50_us": 1500, "lateness_p99_us": 9000, "loading": False}
    assert second["next_due_us"] is second["lateness_p50_us"] is None and second["loading"]
    assert run.client.asked == ["t"]
    code, out, _ = run("stats", "-o", "table")
    assert code == 0 and run.client.asked == [None] and "1.5ms" in out and "9.0ms" in out


def test_a_gauge_beside_other_things_does_not_stand_in_their_way():
    client = Fake()
    client.stats = [part(0), part(1, loading=True)]
    assert delayed.waiting(client, "t") == {0: 3}
    for error in (Unavailable("no"), TimedOut("t"), UnknownTopic("t")):
        client.stats = error
        assert delayed.waiting(client, "t") == {}
