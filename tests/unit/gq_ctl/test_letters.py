"""Giving dead letters back: what is done in which order. What each step asks of the node: test_letters of gq_client."""

from collections.abc import Iterator
from typing import Any

import pytest

from gq_client import letters as operations
from gq_client.letters import letter_of
from gq_ctl import letters, redrive
from gq_proto import codec


def letter(offset: int) -> Any:
    headers = codec.encode_headers([("gq-dlq-topic", b"t"), ("gq-dlq-group", b"g"), ("own", b"1")])
    return letter_of(codec.Record("t.dlq", offset % 2, offset, 5, 2, 0, b"k", b"v%d" % offset, headers))


class Fake:
    """A client that notes what is done to letters, by the operations' names. `there`: offsets whose origin can be re-opened."""

    routes = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: set[int]) -> None:
        self.done: list[tuple[Any, ...]] = []
        for name in ("reopen", "settle", "choose"):
            monkeypatch.setattr(operations, name, lambda routes, *args, name=name: (name, *args))
        self.there, self.pages = there, list[Any]()

    def run(self, step: tuple[Any, ...]) -> Any:
        name, *args = step
        self.done.append((name, [one.record.offset for one in args[-1]]) if name != "choose" else (name, args[-1].after))
        if name == "choose":
            return self.pages.pop(0)
        return [one for one in args[-1] if one.record.offset in self.there]

    def producer(self) -> "Fake":
        return self

    def __enter__(self) -> "Fake":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, topic: str, value: bytes, **options: Any) -> None:
        self.done.append(("send", topic, value, options["key"], options["headers"], options["priority"]))

    def flush(self) -> None:
        self.done.append(("flush",))


def redriven(client: Any, publish: bool = False) -> tuple[int, int]:
    done = redrive.Redrive(client, "t", publish)
    done.run([letter(5), letter(6)])
    return done.redriven, done.published


def test_what_has_an_origin_is_reopened_the_rest_published_and_only_then_are_the_letters_acked(
        monkeypatch: pytest.MonkeyPatch) -> None:
    client = Fake(monkeypatch, {5})
    assert redriven(client) == (1, 1)
    assert client.done == [("reopen", [5, 6]), ("send", "t", b"v6", b"k", [("own", b"1")], 2), ("flush",), ("settle", [5, 6])]


def test_publish_never_asks_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Fake(monkeypatch, {5, 6})
    assert redriven(client, publish=True) == (0, 2)
    assert [what for what, *_ in client.done] == ["send", "send", "flush", "settle"]


def test_letters_are_looked_for_until_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Fake(monkeypatch, set())
    client.pages = [([letter(5), letter(6)], True), ([letter(9)], False)]
    found: Iterator[Any] = letters.letters(client, "t")
    assert [one.record.offset for one in found] == [5, 6, 9]
    assert client.done == [("choose", (-1, -1)), ("choose", (0, 6))]


def test_places_are_grouped_by_partition() -> None:
    assert list(redrive.by_place([letter(1), letter(2), letter(3)])) == [(1, [1, 3]), (0, [2])]
