"""Consuming through a gateway, with the face of gq_client's Consumer as far as `consume` uses it.

Owns one membership and the receipts of what was handed out and not settled. Acks travel together, before the next poll or when
flushed. When it is closed, what nobody settled goes back at once, uncounted; with `hold` it stays until its deadline.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final
from urllib.parse import quote

from gq_ctl.message import Headers
from gq_ctl.remote import Remote, RemoteMessage, message_of
from gq_proto.errors import GoQueueError, UnknownMember
from gq_proto.messages import EARLIEST

WAIT_S: Final = 20.0
RETRY_S: Final = 0.5


class Leased:
    """A message in our hands."""

    def __init__(self, consumer: "RemoteConsumer", message: RemoteMessage, delivery: int, receipt: str) -> None:
        self._consumer, self._message = consumer, message
        self.delivery, self.receipt = delivery, receipt
        self.topic, self.partition, self.offset = message.topic, message.partition, message.offset
        self.timestamp, self.priority, self.flags = message.timestamp, message.priority, message.flags
        self.key, self.value = message.key, message.value
        self.headers: Headers = message.headers
        self.raw_headers, self.system_headers = message.raw_headers, message.system_headers

    def ack(self, sync: bool = False) -> None:
        self._consumer.settle("ack", self.receipt, sync)

    def nack(self, sync: bool = False) -> None:
        self._consumer.settle("nack", self.receipt, sync)


class RemoteConsumer:
    """A member of `group`, made at once."""

    def __init__(self, remote: Remote, topics: Sequence[str], group: str, *, start: str = EARLIEST, mode: str = "",
                 ack: str = "manual", visibility: float | None = None,
                 session: float = 30.0, hold: bool = False, max_poll: int = 500) -> None:
        self._remote, self._group, self._hold, self._most = remote, f"/groups/{quote(group, '')}", hold, max_poll
        self._visibility = visibility
        self._join = {"topics": list(topics), "mode": mode, "start": f"@{int(start) / 1_000_000:.6f}" if start.isdigit() else start,
                      "session": session, "client": "gqctl"}
        self._held: dict[str, None] = {}
        self._acks: list[str] = []
        self._member = remote.ask("POST", f"{self._group}/join", self._join)["member"]

    def poll(self, most: int, timeout: float | None = None) -> list[Leased]:
        """Up to `most` messages, [] when none comes for `timeout` seconds (None: for ever)."""
        self.flush()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_S if end is None else max(0.0, end - time.monotonic())
            found = self._poll_once(min(most, self._most), min(left, WAIT_S))
            if found or (end is not None and time.monotonic() >= end):
                return found

    def _poll_once(self, most: int, wait: float) -> list[Leased]:
        try:
            found = self._remote.ask("GET", f"{self._group}/poll", member=self._member, max=most, wait=round(wait, 3),
                                     visibility=self._visibility)
        except UnknownMember:
            self._member = self._remote.ask("POST", f"{self._group}/join", self._join)["member"]
            return []
        except GoQueueError as error:
            if not error.retriable:
                raise
            time.sleep(min(wait, RETRY_S))
            return []
        leased = [Leased(self, message_of(one), one["delivery"], one["receipt"]) for one in found["messages"]]
        self._held.update(dict.fromkeys(message.receipt for message in leased))
        return leased

    def settle(self, word: str, receipt: str, sync: bool) -> None:
        """Acks wait for company unless `sync`; the error of a receipt that came too late is raised then."""
        self._held.pop(receipt, None)
        if word == "ack" and not sync:
            self._acks.append(receipt)
            return
        [error] = self._remote.settle_texts(f"/messages/{word}", [receipt], {})
        if error:
            raise error

    def flush(self) -> None:
        """What was acked is durable."""
        acks, self._acks = self._acks, []
        if acks:
            self._remote.settle_texts("/messages/ack", acks, {})

    def close(self) -> None:
        self.flush()
        if self._held and not self._hold:
            self._remote.settle_texts("/messages/release", list(self._held), {})
        self._remote.ask("POST", f"{self._group}/leave", {"member": self._member})

    def __enter__(self) -> "RemoteConsumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
