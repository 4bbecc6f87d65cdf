"""A node behind its gateway, with the face of gq_client.Client as far as commands use it: `gqctl --gateway URL --key K`.

Owns one kept connection (http.client). A problem becomes the error it stands for, so commands and exit codes are the same as beside
the node. What does not go through the gateway says so.
"""

import http.client
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gq_client.batch import Published
from gq_client.draft import Headers, headers_of, priority_of
from gq_ctl.message import BASE64, from_json
from gq_ctl.message import Headers as HeaderList
from gq_proto import limits
from gq_proto import messages as m
from gq_proto.errors import BY_NAME, BadRequest, GoQueueError, Internal, NotFound, TooLarge, Unavailable, UnknownTopic
from gq_proto.messages import EARLIEST, LATEST, Op
from gq_proto.receipt import Receipt

TIMEOUT_S: Final = 90.0               # beyond the longest poll
BATCH_MESSAGES: Final = 500
BATCH_BYTES: Final = limits.MIB
PAGE: Final = 500
TURN_S: Final = 0.2                   # a reader at the end looks again so often
WORDS: Final = {Op.ACK: "ack", Op.NACK: "nack", Op.REJECT: "reject", Op.EXTEND: "visibility", Op.RELEASE: "release"}
Json = dict[str, Any]


class RemoteMessage(NamedTuple):
    """A message as commands print it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderList
    priority: int
    flags: int = 0
    system_headers: tuple[()] = ()

    @property
    def raw_headers(self) -> bool:
        return bool(self.headers)


def message_of(shown: Json) -> RemoteMessage:
    """What the gateway shows of a message, as bytes."""
    draft = from_json({"value": shown["value"], "key": shown["key"], "headers": shown["headers"], "encoding": shown.get("encoding"),
                       "key_encoding": shown.get("keyEncoding")}, 0)
    return RemoteMessage(shown["topic"], shown["partition"], shown["offset"], shown["timestamp"], draft.key, draft.value,
                         draft.headers, shown["priority"])


def shown_of(value: Any, key: Any, headers: Headers, priority: int | str | None, delay: float | None, deliver_at: Any,
             partition: int | None) -> Json:
    """A message as the gateway takes it; BadRecord, TooLarge for what no node would take."""
    found: Json = {"value": None}
    for name, encoding, data in (("value", "encoding", value), ("key", "keyEncoding", key)):
        if data is not None:
            found[name], binary = _text(data.encode() if isinstance(data, str) else bytes(data))
            found |= {encoding: BASE64} if binary else {}
    pairs = headers_of(headers)
    if pairs:
        found["headers"] = [[name, {BASE64: text} if binary else text] for name, (text, binary) in
                            ((name, _text(data)) for name, data in pairs)]
    said = {"priority": None if priority is None else priority_of(priority), "delay": delay, "deliverAt": deliver_at,
            "partition": partition}
    return found | {name: field for name, field in said.items() if field is not None}


def _text(data: bytes) -> tuple[str, bool]:
    from binascii import b2a_base64
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return b2a_base64(data, newline=False).decode(), True


class Remote:
    """`url`: of the gateway, http or https; `key`: an API key or ""; `ca` and `cert`: see remote_tls. Not for several threads."""

    routes = None

    def __init__(self, url: str, key: str = "", ca: str = "", cert: str = "", **ignored: Any) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadRequest(f"{url!r} is no gateway: write http://host:8080")
        self._host, self._port, self._tls = parts.hostname, parts.port, parts.scheme == "https"
        self._path = parts.path.rstrip("/") + ("" if parts.path.rstrip("/").endswith("/v1") else "/v1")
        self._key, self._line = key, self._made(ca, cert)

    def _made(self, ca: str, cert: str) -> http.client.HTTPConnection:
        if self._tls:
            from gq_ctl import remote_tls
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=remote_tls.context(ca, cert))
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)

    # -- requests -----------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's JSON; the error that a problem stands for."""
        said = {name: value for name, value in query.items() if value not in (None, "")}
        target = self._path + path + ("?" + urlencode(said) if said else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        if data is not None:
            headers["Content-Type"] = "application/json"
        status, answer = self._exchange(method, target, data, headers)
        if status >= 400:
            raise error_of(status, answer)
        return json.loads(answer) if answer else None

    def _exchange(self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        fresh = self._line.sock is None
        try:
            return self._once(method, target, data, headers)
        except (http.client.HTTPException, OSError) as error:
            self._line.close()
            if fresh or method != "GET" or not _ended(error):
                raise self._unreachable(error) from None
        try:
            return self._once(method, target, data, headers)         # a kept connection that had ended meanwhile
        except (http.client.HTTPException, OSError) as error:
            self._line.close()
            raise self._unreachable(error) from None

    def _once(self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        self._line.request(method, target, data, dict(headers))
        answer = self._line.getresponse()
        return answer.status, answer.read()

    def _unreachable(self, error: Exception) -> Unavailable:
        where = f"{self._host}:{self._line.port}"
        if self._tls and isinstance(error, OSError):
            from gq_ctl import remote_tls
            if why := remote_tls.said(error, where):
                return Unavailable(why)
        if isinstance(error, http.client.HTTPException):
            hint = "does it want a certificate of yours (--gateway-cert)?" if self._tls else "is it https://?"
            return Unavailable(f"no HTTP comes from {where}, {hint} ({str(error) or type(error).__name__})")
        return Unavailable(f"cannot reach the gateway at {where}: {error or type(error).__name__}")

    def run(self, operation: Any, timeout: float | None = None) -> NoReturn:
        raise BadRequest("this does not go through the gateway: use --server or --data-dir")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise BadRequest("this does not go through the gateway: use --server or --data-dir")

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()

    # -- topics -------------------------------------------------------------------------------

    def topic(self, name: str) -> m.TopicMeta:
        return topic_of(self.ask("GET", f"/topics/{quote(name, '')}"))

    def topics(self) -> list[m.TopicMeta]:
        return [topic_of(one) for one in self.ask("GET", "/topics", internal="true")["topics"]]

    def has_topic(self, name: str) -> bool:
        try:
            self.topic(name)
        except UnknownTopic:
            return False
        return True

    def create_topic(self, name: str, *, partitions: int = 0, replication_factor: int = 0, config: Mapping[str, Any] | None = None,
                     if_not_exists: bool = False) -> m.TopicMeta:
        body = {"name": name, "partitions": partitions, "replicationFactor": replication_factor, "config": dict(config or {}),
                "ifNotExists": if_not_exists}
        return topic_of(self.ask("POST", "/topics", body))

    def alter_topic(self, name: str, *, partitions: int = 0, config: Mapping[str, Any] | None = None) -> m.TopicMeta:
        return topic_of(self.ask("PATCH", f"/topics/{quote(name, '')}", {"partitions": partitions, "config": dict(config or {})}))

    def delete_topic(self, name: str) -> None:
        self.ask("DELETE", f"/topics/{quote(name, '')}")

    def delete_before(self, name: str, partition: int, offset: int) -> int:
        before = LATEST if offset < 0 else offset
        found = self.ask("POST", f"/topics/{quote(name, '')}/purge", {"partition": partition, "before": before})
        return int(found["partitions"][0]["logStart"])

    def partitions(self, name: str) -> list[m.PartitionInfo]:
        found = self.ask("GET", f"/topics/{quote(name, '')}")
        return [m.PartitionInfo(int(found["id"]), name, part["partition"], part["epoch"], True, part["online"], part["logStart"],
                                part["highWatermark"], part["lastStable"], part["sizeBytes"], part["segments"], part["problem"])
                for part in found["partitionDetails"]]

    def offset_for_time(self, name: str, partition: int, timestamp_us: int) -> int:
        found = self._page(name, partition, limit=1, from_time=timestamp_us / 1_000_000)
        return int(found["messages"][0]["offset"] if found["messages"] else found["partitions"][0]["highWatermark"])

    def _page(self, name: str, partition: int, **query: Any) -> Json:
        found: Json = self.ask("GET", f"/topics/{quote(name, '')}/partitions/{partition}/messages", **query)
        return found

    # -- messages -----------------------------------------------------------------------------

    def publish(self, topic: str, value: Any, key: Any = None, *, headers: Headers = None, priority: int | str | None = None,
                delay: float | None = None, deliver_at: Any = None, partition: int | None = None, acks: str = "leader",
                compress: str | None = None) -> Published:
        shown = shown_of(value, key, headers, priority, delay, deliver_at, partition)
        place = self.ask("POST", f"/topics/{quote(topic, '')}/publish", shown, acks=acks)
        return Published(place["partition"], place["offset"], place["timestamp"])

    def producer(self, *, acks: str = "leader", compress: str | None = None) -> "RemoteProducer":
        return RemoteProducer(self, acks)

    def reader(self, topic: str, partition: int, from_: Any = EARLIEST, *, stop_at_end: bool = False,
               include_delayed: bool = False) -> "RemoteReader":
        if include_delayed:
            raise BadRequest("what is not due yet is not read through the gateway")
        return RemoteReader(self, topic, partition, int(from_), stop_at_end)

    def page(self, topic: str, partition: int, offset: int, limit: int) -> tuple[list[RemoteMessage], int]:
        """Up to `limit` messages from `offset` on, and where to go on."""
        found = self._page(topic, partition, offset=offset, limit=limit)
        return [message_of(one) for one in found["messages"]], found["partitions"][0]["nextOffset"]

    def consumer(self, topics: Sequence[str], group: str, **options: Any) -> Any:
        from gq_ctl.remote_consumer import RemoteConsumer
        return RemoteConsumer(self, topics, group, **options)

    def settle(self, op: Op, receipts: Iterable[Receipt], *, arg_ms: int = -1, reason: str = "") -> list[GoQueueError | None]:
        texts = [receipt.text() for receipt in receipts]
        more: Json = {"reason": reason} if op == Op.REJECT else {}
        if op == Op.EXTEND or (op == Op.NACK and arg_ms >= 0):
            more = {"timeout" if op == Op.EXTEND else "delay": arg_ms / 1000}
        return self.settle_texts(f"/messages/{WORDS[op]}", texts, more) if texts else []

    def settle_texts(self, path: str, texts: list[str], more: Json) -> list[GoQueueError | None]:
        found = self.ask("POST", path, {"receipts": texts, **more})
        return [None if one["ok"] else problem_of(one["error"]) for one in found["results"]]

    # -- groups -------------------------------------------------------------------------------

    def groups(self) -> list[m.GroupSummary]:
        return [m.GroupSummary(one["group"], one["mode"], one["members"], one["topics"], one["paused"], one["lag"])
                for one in self.ask("GET", "/groups")["groups"]]

    def describe_group(self, group: str) -> m.GroupInfo:
        found = self.ask("GET", f"/groups/{quote(group, '')}")
        members = [m.MemberInfo(one["member"], one["client"], round(one["sessionSeconds"] * 1000),
                                round(one["heardSecondsAgo"] * 1000), one["topics"],
                                [m.Assigned(0, part["topic"], part["partition"], -1) for part in one["assignment"]],
                                one["inFlight"])
                   for one in found["members"]]
        parts = [m.GroupPartition(one["topic"], 0, one["partition"], one["owner"] or "", one["committed"], one["end"],
                                  one["logStart"], one["lag"], one["inFlight"], one["retrying"], [0, one["ackedAhead"]],
                                  one["scheduled"], one["expired"], -1 if one["skippedTo"] is None else one["skippedTo"])
                 for one in found["partitions"]]
        return m.GroupInfo(group, 0, found["mode"], found["generation"], found["paused"], members, parts, found["topics"],
                           found["state"])

    def delete_group(self, group: str, *, force: bool = False) -> None:
        self.ask("DELETE", f"/groups/{quote(group, '')}", force="true" if force else None)

    def pause_group(self, group: str, paused: bool = True) -> None:
        self.ask("POST", f"/groups/{quote(group, '')}/{'pause' if paused else 'resume'}")

    def reset(self, group: str, name: str, partition: int, offset: int) -> tuple[int, int]:
        found = self.ask("POST", f"/groups/{quote(group, '')}/reset", {"topic": name, "partition": partition, "to": offset})
        return found["partitions"][0]["acked"], found["partitions"][0]["again"]

    def rewind(self, group: str, name: str, partition: int, low: int, high: int) -> int:
        body = {"group": group, "partition": partition, "from": low, "to": high}
        found = self.ask("POST", f"/topics/{quote(name, '')}/replay", body)
        return int(found["messages"])

    # -- dead letters ---------------------------------------------------------------------------

    def letters(self, topic: str, partition: int | None = None) -> Iterator[Json]:
        """Outstanding ones as the gateway shows them, by partition and offset."""
        after = ""
        while True:
            found = self.ask("GET", f"/topics/{quote(topic, '')}/dlq", partition=partition, after=after, limit=PAGE)
            yield from found["letters"]
            if not found["more"] or not found["letters"]:
                return
            after = f"{found['letters'][-1]['partition']}:{found['letters'][-1]['offset']}"

    def redrive(self, topic: str, partition: int, offsets: list[int], publish: bool) -> tuple[int, int]:
        """(redriven, published) of these letters."""
        found = self.ask("POST", f"/topics/{quote(topic, '')}/dlq/redrive",
                         {"partition": partition, "offsets": offsets, "limit": max(1, len(offsets)), "publish": publish})
        return found["redriven"], found["published"]

    def purge_letters(self, topic: str, partition: int, offsets: list[int]) -> None:
        """Forget these letters."""
        self.ask("DELETE", f"/topics/{quote(topic, '')}/dlq", partition=partition, offsets=",".join(map(str, offsets)),
                 limit=max(1, len(offsets)))


class RemoteProducer:
    """Sends batches of BATCH_MESSAGES; an error of one of them ends it."""

    def __init__(self, remote: Remote, acks: str) -> None:
        self._remote, self._acks = remote, acks
        self._topic, self._size = "", 0
        self._waiting: list[Json] = []

    def send(self, topic: str, value: Any, key: Any = None, headers: Headers = None, priority: int | str | None = None,
             delay: float | None = None, deliver_at: Any = None, partition: int | None = None) -> None:
        if key is not None and len(key) > limits.KEY_MAX:
            raise TooLarge(f"a key of {len(key)} bytes is above the limit of {limits.KEY_MAX}")
        shown = shown_of(value, key, headers, priority, delay, deliver_at, partition)
        if self._waiting and (topic != self._topic or len(self._waiting) >= BATCH_MESSAGES or self._size >= BATCH_BYTES):
            self.flush()
        self._topic = topic
        self._waiting.append(shown)
        self._size += len(value or b"")

    def flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if not waiting:
            return
        found = self._remote.ask("POST", f"/topics/{quote(self._topic, '')}/batch", {"messages": waiting}, acks=self._acks)
        for result in found["results"]:
            if "error" in result:
                raise problem_of(result["error"])

    def __enter__(self) -> "RemoteProducer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.flush()


class RemoteReader:
    """One partition from an offset on."""

    def __init__(self, remote: Remote, topic: str, partition: int, offset: int, stop_at_end: bool) -> None:
        self._remote, self._topic, self._partition, self.next_offset = remote, topic, partition, offset
        self._stop_at_end = stop_at_end

    def poll(self, most: int = PAGE, timeout: float | None = None) -> list[RemoteMessage]:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found, self.next_offset = self._remote.page(self._topic, self._partition, self.next_offset, most)
            left = TURN_S if end is None else end - time.monotonic()
            if found or self._stop_at_end or left <= 0:
                return found
            time.sleep(min(left, TURN_S))

    def __iter__(self) -> Iterator[RemoteMessage]:
        while batch := self.poll():
            yield from batch

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> "RemoteReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _ended(error: Exception) -> bool:
    """The other side ended the connection, as it may do with one that was kept."""
    return (isinstance(error, http.client.RemoteDisconnected | ConnectionError)
            or type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError"))     # of ssl, which may not be imported


def topic_of(found: Json) -> m.TopicMeta:
    parts = found.get("partitionDetails") or []
    leaders = {part["partition"]: m.PartitionMeta(part["leader"], part["epoch"]) for part in parts}
    return m.TopicMeta(found["name"], int(found["id"]), msgspec.convert(found["config"], m.TopicConfig),
                       [leaders.get(number, m.PartitionMeta("", -1)) for number in range(found["partitions"])],
                       found["replicationFactor"], found["createdAt"])


def error_of(status: int, answer: bytes) -> GoQueueError:
    """Of an answer that is none of ours (a proxy's, say): by its status."""
    try:
        return problem_of(json.loads(answer))
    except (ValueError, KeyError, TypeError):
        kind = NotFound if status == 404 else Unavailable if status in (502, 503, 504) else Internal
        return kind(f"the gateway answered {status}: {answer[:200].decode(errors='replace')}")


def problem_of(problem: Json) -> GoQueueError:
    status = problem["status"]
    kind = BY_NAME.get(problem["code"], NotFound if status == 404 else BadRequest if status < 500 else Internal)
    return kind(problem["detail"])
