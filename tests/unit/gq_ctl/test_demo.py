"""The demo's own logic: what it sends, what it makes of the notes, what it deletes."""

import contextlib
import io
import json
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gq_client
from gq_ctl import demo
from gq_ctl.demo_stage import Worker
from gq_ctl.demo_work import (
    CRITICAL,
    DELAYED,
    NO_LIMIT,
    Gate,
    Note,
    Teller,
    consume,
    overtaken,
    pack_notes,
    read_notes,
    rebuild,
    source_files,
    source_lines,
)

notes = st.builds(Note, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1),
                  st.binary(max_size=9), st.binary(max_size=9))


@given(st.lists(notes))
def test_notes_come_back(sent):
    assert list(read_notes(pack_notes(sent))) == sent


def test_notes_cut_anywhere_lose_only_the_last():
    sent = [Note(1, 2, 1, b"a.py", b"x\n"), Note(1, 3, 1, b"a.py", b""), Note(0, 0, 2, b"", b"y")]
    ends = [len(pack_notes(sent[:n])) for n in range(len(sent) + 1)]
    for low, high in pairwise(ends):
        for cut in range(low, high):
            assert list(read_notes(pack_notes(sent)[:cut])) == sent[:ends.index(low)]


def test_rebuild_orders_by_offset_and_counts_what_came_again():
    got = [Note(0, 7, 1, b"a", b"2"), Note(0, 5, 2, b"a", b"1\n"), Note(1, 0, 1, b"b", b"x\r\n"), Note(0, 7, 1, b"a", b"2")]
    assert rebuild(got) == ({b"a": b"1\n2", b"b": b"x\r\n"}, 3, 2)


def test_the_demos_own_messages_are_no_lines_and_what_they_overtook_is_counted() -> None:
    def line(partition: int, offset: int) -> Note:
        return Note(partition, offset, 1, b"a", b"x")

    mine = [Note(1, 9, 1, CRITICAL, b"!"), Note(0, 3, 1, DELAYED, b"?")]
    assert rebuild([line(0, 1), *mine])[1] == 1
    notes = [line(1, 1), line(1, 2), mine[0], line(1, 2), line(1, 3), line(1, 3), line(1, 7), line(1, 12), line(0, 4)]
    assert overtaken(notes, CRITICAL) == 2, "3 and 7: not what came again, later offsets, other partitions"
    assert overtaken(notes, DELAYED) == overtaken([], CRITICAL) == 0


def make_tree(root: Path) -> None:
    (root / "pkg/__pycache__").mkdir(parents=True)
    (root / "site-packages").mkdir()
    (root / "pkg/a.py").write_bytes(b"one\r\ntwo\x0b\nlast")
    (root / "b.py").write_bytes(b"\n")
    (root / "empty.py").write_bytes(b"")
    (root / "notes.txt").write_bytes(b"no\n")
    (root / "site-packages/c.py").write_bytes(b"no\n")


def test_source_lines_are_the_files(tmp_path):
    make_tree(tmp_path)
    assert source_files(tmp_path) == [Path("b.py"), Path("empty.py"), Path("pkg/a.py")]
    assert list(source_lines(tmp_path)) == [(b"b.py", b"\n"), (b"pkg/a.py", b"one\r\n"), (b"pkg/a.py", b"two\x0b\n"),
                                            (b"pkg/a.py", b"last")]


def test_compare_sees_a_wrong_byte_a_missing_and_a_surplus_file(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    make_tree(source)
    run = demo.Demo(tmp_path / "demo", source)
    run.rebuilt.mkdir(parents=True)
    assert run.compare({b"b.py": b"\n", b"pkg/a.py": b"one\r\ntwo\x0b\nlast"}) == []
    assert run.compare({b"b.py": b"", b"z.py": b""}) == [Path("b.py"), Path("pkg/a.py"), Path("z.py")]


def test_clear_spares_what_is_not_the_demos(tmp_path):
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(demo.DemoFailed):
        demo.clear(tmp_path)
    assert (tmp_path / "mine").read_text() == "keep"
    folder = tmp_path / "demo"
    demo.clear(folder)
    (folder / "data").mkdir()
    demo.clear(folder)
    assert [path.name for path in folder.iterdir()] == [demo.MARK]


def holdings(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return [told["holding"] for told in map(json.loads, capsys.readouterr().out.splitlines()) if "holding" in told]


def test_a_gate_holds_until_the_limit_is_above_what_was_taken(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n9\n"))
    gate = Gate(Teller(), 3)
    gate.pass_with(2)
    assert holdings(capsys) == []
    gate.pass_with(5)
    assert holdings(capsys) == [3, 5]
    gate.pass_with(9)
    gate.pass_with(10**9)
    assert holdings(capsys) == [9], "and without a director no more"


def test_a_consumer_stands_with_a_batch_that_is_noted_and_not_acked(tmp_path, monkeypatch):
    acked: list[int] = []
    seen: list[tuple[int, list[int]]] = []

    def message(offset: int, key: bytes) -> Any:
        return SimpleNamespace(partition=0, offset=offset, delivery=1, key=key, value=b"x", flags=0, timestamp=0,
                               ack=lambda: acked.append(offset))

    batches = [[message(0, b"a"), message(1, CRITICAL)], [message(2, b"a"), message(3, b"b")], [message(4, b"b")]]

    def poll(timeout: float) -> Any:
        if not batches:
            signal.raise_signal(signal.SIGTERM)
        return batches.pop(0) if batches else []

    def readline() -> str:
        seen.append((len(list(read_notes((tmp_path / "notes").read_bytes()))), acked.copy()))
        return f"{NO_LIMIT}\n"

    consumer = contextlib.nullcontext(SimpleNamespace(poll=poll))
    client = SimpleNamespace(consumer=lambda *args, **options: consumer)
    monkeypatch.setattr(gq_client, "Client", lambda: contextlib.nullcontext(client))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=readline))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        consume(tmp_path / "notes", 2)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert seen == [(4, [0, 1])], "of the second batch all is noted and none acked"
    assert acked == [0, 1, 2, 3, 4]


class Quick:
    """A worker of an endlessly quick machine: when it is let go it has taken all it may at once, whole batches."""

    def __init__(self, name: str, *argv: str) -> None:
        self.name, self.killed, self.path = name, False, Path(argv[1])
        self.process = SimpleNamespace(pid=int(name[-1])) if argv[0] == "consume" else None
        self.facts: dict[str, Any] = {"done": True}
        self.go(int(argv[3]))

    def go(self, limit: int = 0) -> None:
        self.facts |= {"taken": min(limit + 499, 60_000), "holding": limit, "since": time.monotonic()}

    def kill(self) -> None:
        self.killed = True
        self.path.write_bytes(pack_notes([Note(0, 0, 1, b"", b"")] * self.facts["taken"]))


@pytest.fixture
def quick_run(tmp_path, monkeypatch):
    """A run whose workers are Quick and whose daemons are none; `blows`: what fell when what share was taken."""
    run = demo.Demo(tmp_path, tmp_path)
    run.notes.mkdir()
    run.total, run._end, run.blows = 60_000, float("inf"), []
    parts = [SimpleNamespace(partition=n, lag=n) for n in range(6)]
    members = [SimpleNamespace(client=f"demo:{n}", assignment=parts[2 * n - 2:2 * n]) for n in (1, 2, 3)]
    client = SimpleNamespace(describe_group=lambda group: SimpleNamespace(partitions=parts, members=members),
                             publish=lambda topic, value, key, **options: (run.blows.append((key, run._taken())),
                                                                           SimpleNamespace(partition=0))[1])

    def kill_daemons(*names: str, then: Any) -> None:
        run.blows += [(name, run._taken()) for name in names]
        then()

    monkeypatch.setattr(run, "_worker", Quick)
    monkeypatch.setattr(run, "_client", lambda: contextlib.nullcontext(client))
    monkeypatch.setattr(run, "_kill_daemons", kill_daemons)
    monkeypatch.setattr(run, "_all_acked", lambda: True)
    return run


def test_each_blow_falls_before_all_is_taken_however_quick_the_machine(quick_run):
    quick_run._publish_and_consume()
    what, shares = zip(*quick_run.blows, strict=True)
    assert what == (DELAYED, "logd", "delayd", CRITICAL, "groupd", "metad")
    assert list(shares) == sorted(shares) and shares[3] < 0.2 and shares[-1] < 1
    [(_, pid, _, taken, _)] = quick_run.kills
    assert pid == 2, "the one that has neither the delayed message's partition nor the critical one's"
    assert shares[3] < taken < shares[4]
    assert [worker.facts["holding"] for worker in quick_run._live()] == [NO_LIMIT] * 3


def test_those_that_have_nothing_to_take_are_not_waited_for_long(quick_run):
    quick_run._limit = 7
    quick_run.consumers = [Quick(f"consumer-{n}", "consume", "", "--hold-at", "7") for n in (1, 2)]
    assert quick_run._all_stand()
    idle, stands = quick_run.consumers
    idle.facts = {"taken": 0}
    assert quick_run._one_stands() and not quick_run._all_stand()
    stands.facts["since"] -= demo.STAND_S
    assert quick_run._all_stand()
    assert quick_run._victim() is stands, "the idle one holds nothing that could come again"


def test_a_worker_that_was_let_go_stands_nowhere(quick_run):
    worker = Worker.__new__(Worker)
    worker.facts, worker.killed, worker.into = {"holding": 0, "since": 0.0}, False, io.BytesIO()
    quick_run.consumers = [worker]
    assert quick_run._standing() == [worker]
    worker.go(0)
    assert quick_run._standing() == [], "even when so few lines are sent that the next point is the same"
    assert worker.into.getvalue() == b"0\n"
