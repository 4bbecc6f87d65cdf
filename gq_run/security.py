"""Who is asking, and may they? Keys as metad spreads them, checked without asking metad.

Every listener is of one of two kinds. A trusted one takes requests as they come: ipc in the runtime directory (mode 0700),
loopback tcp unless `security.require` says tcp, everything under `security.insecure`. A guarded one (public tcp) speaks CURVE and
wants of each request an API key in the envelope's token, or that the connection's CURVE key is known to metad.

    Verifier    token (or CURVE key) -> Access; for daemons, and for a gateway that checks its own callers
    Guard       what a Server asks about a guarded listener: admit(), shown()
    Scrapers    what a guarded metrics listener asks: admit()

A gateway is a trusted client of metad and checks its own callers:

    verifier = Verifier()                                          # before the first take() access() is Unavailable
    verifier.take(reply)                                           # of each Metadata(verifier.version, ..., keys=True)

    access = verifier.access(token)                                # Unauthorized -> 401; token: str or bytes, "" when none came
    access.need(PUBLISH, topic="orders")                           # Forbidden -> 403, in the same words whether it exists or not
    access.need(CONSUME, topic="orders", group="billing")
    access.sees("orders"), access.sees_group("billing")            # which names a listing shows
    access.name                                                    # for logs and quotas; never log a token

Verbs are in gq_proto.keys, the right that each kind of native request needs in gq_proto.rights. Whether a listener at an address
needs keys at all says `needs_keys(config, key)`; `check_any(config, key, verifier)` refuses a public one while no key was
made. Never logs a token.
"""

import hmac
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import zmq

from gq_proto import keys, messages, rights
from gq_proto.access import Access, Keyring
from gq_proto.errors import BadConfig, BadRequest, Forbidden, Unauthorized, Unavailable
from gq_run import curve, logs, paths
from gq_run.options import Config

if TYPE_CHECKING:
    from gq_run.server import Incoming

NO_KEY: Final = "an API key is needed here: send one that may read metrics, `Authorization: Bearer KEY`"
WARN_S: Final = 10.0             # who has no valid key is told of in the log this often at most
CACHED_MAX: Final = 10_000       # callers whose access is remembered; when there are more, all are looked up anew


OWN_NODE: Final = Access(messages.KeyMeta("", "this node", [], 0, node=True))


class Verifier:
    """Tokens and CURVE keys to what they may. Decisions are remembered until keys change or an access expires."""

    def __init__(self, wall_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._wall_us = wall_us
        self._ring = Keyring()
        self._known: dict[tuple[str, bytes], Access] = {}
        self.version = 0             # of the metadata taken last
        self.round = 0               # grows whenever keys may have changed

    def take(self, reply: messages.MetadataReply) -> None:
        """An answer of metad that may bring keys along: all of them."""
        self.version = reply.version
        if reply.keys is not None:
            self._ring.take(reply.keys)
            self.forget()

    def forget(self) -> None:
        """Look everybody up anew."""
        self._known.clear()
        self.round += 1

    @property
    def known(self) -> bool:
        """Has metad told which keys there are?"""
        return self._ring.known

    def count(self, own: str = "") -> int:
        """How many keys there are for others; with `own`, a CURVE key, those that are known by another one, too."""
        return self._ring.count(own)

    def access(self, token: str | bytes, curve: str = "") -> Access:
        """Of who sends this token; without one, of who has this CURVE key. Unauthorized; Unavailable before metad's first word."""
        key = (curve, token.encode("utf-8", "replace") if isinstance(token, str) else token)
        found = self._known.get(key)
        if found is None or self.is_over(found):
            found = self._look_up(*key)
        return found

    def is_over(self, access: Access) -> bool:
        """Has its key come to its end?"""
        return access.key.expires_us > 0 and access.expired(self._wall_us())

    def _look_up(self, curve: str, token: bytes) -> Access:
        if not self._ring.known:
            raise Unavailable("the keys are not known yet: metad has not answered")
        found = self._ring.of_token(token, self._wall_us()) if token or not curve else self._ring.of_curve(curve, self._wall_us())
        if len(self._known) >= CACHED_MAX:
            self._known.clear()
        self._known[curve, token] = found
        return found


class Guard:
    """Of one daemon's guarded listener. `names(topic_id)`: a topic's name, None for one that is not known here."""

    def __init__(self, pair: tuple[bytes, bytes], log: logging.Logger, names: Callable[[int], str | None] = lambda topic_id: None,
                 now: Callable[[], float] = time.monotonic, verifier: Verifier | None = None) -> None:
        self._pair, self._log, self._now = pair, log, now
        self.verifier = verifier or Verifier()
        self.names = names
        self.unauthorized = 0        # requests without a valid key
        self.forbidden = 0           # requests that the key gives no right to
        self._warn_at = 0.0
        self._warned_of = 0

    @property
    def public_key(self) -> str:
        return self._pair[0].decode()

    def prepare(self, socket: "zmq.Socket[bytes]") -> None:
        """Before it is bound."""
        curve.serve(socket, self._pair)

    def admit(self, incoming: "Incoming", frame: Any) -> None:
        """Whose request is it? `frame`: any of it. Unauthorized, Unavailable."""
        incoming.curve, incoming.round = curve.user_of(frame), self.verifier.round
        incoming.access = self._access(incoming)

    def check(self, incoming: "Incoming") -> None:
        """May its caller ask that? Forbidden, UnknownTopicId."""
        assert incoming.access is not None
        try:
            rights.check(incoming.access, incoming.kind, incoming.topic_id, incoming.body, self.names)
        except Forbidden:
            self.forbidden += 1
            raise

    def shown(self, incoming: "Incoming", body: messages.Body) -> messages.Body:
        """What of a reply to show; Unauthorized when the key was revoked or ended while the request waited."""
        assert incoming.access is not None
        if incoming.round != self.verifier.round or self.verifier.is_over(incoming.access):
            incoming.round, incoming.access = self.verifier.round, self._access(incoming)
        seen: messages.Body = rights.shown(incoming.access, incoming.kind, body)
        return seen

    def _access(self, incoming: "Incoming") -> Access:
        if incoming.curve == self.public_key and not incoming.token:
            return OWN_NODE
        try:
            return self.verifier.access(incoming.token, incoming.curve)
        except Unauthorized:
            self.unauthorized += 1
            self._warn()
            raise

    def _warn(self) -> None:
        if self._now() >= self._warn_at:
            self._warn_at = self._now() + WARN_S
            self._log.warning("requests without a valid key", extra=logs.fields(requests=self.unauthorized - self._warned_of))
            self._warned_of = self.unauthorized


class Refusing(Protocol):
    """Who turns callers away, and how many: without a valid key, without the right to what they ask."""

    unauthorized: int
    forbidden: int


class Scrapers:
    """Who may read a daemon's metrics: a key with the right to, and the gateway of the same node, by `own`."""

    def __init__(self, verifier: Verifier, own: str) -> None:
        self.verifier, self._own = verifier, own.encode()
        self.unauthorized = self.forbidden = 0

    def admit(self, token: str) -> None:
        """Unauthorized, Forbidden; Unavailable before metad's first word."""
        if hmac.compare_digest(token.encode("utf-8", "replace"), self._own):
            return
        try:
            if not token:
                raise Unauthorized(NO_KEY)
            self.verifier.access(token).need_metrics()
        except Unauthorized:
            self.unauthorized += 1
            raise
        except Forbidden:
            self.forbidden += 1
            raise


def own_token(pair: tuple[bytes, bytes]) -> str:
    """By which daemons of one node know each other over HTTP; made of the secret half of its CURVE keys, which it tells nobody."""
    return "node_" + hmac.digest(pair[1], b"goqueue-metrics", "sha256").hex()


# -- listeners -------------------------------------------------------------------------------

def needs_keys(config: Config, key: str) -> bool:
    """Is the listener of option `key` guarded? BadConfig for what is no address."""
    host, _ = paths.split_address(config.text(key))
    if config.switch("security.insecure") or (key.startswith("metrics.") and config.switch("metrics.open")):
        return False
    return config.text("security.require") == "tcp" or not paths.is_loopback(host)


def check(config: Config) -> None:
    """BadConfig for a key that is none."""
    key = config.text("security.metadKey")
    try:
        _ = keys.check_curve(key) if key else ""
    except BadRequest as e:
        raise BadConfig(f"security.metadKey: {e.message}") from None


def check_any(config: Config, key: str, verifier: Verifier, own: str = "") -> None:
    """BadConfig when the listener of option `key` is open to other machines, but nobody could get in: metad knows of no API key,
    and, where callers are known by CURVE keys, of none but this node's `own`."""
    address = config.text(key)
    public = not paths.is_loopback(paths.split_address(address)[0])
    if public and needs_keys(config, key) and verifier.known and not verifier.count(own):
        raise BadConfig(f"{key}: {address!r} needs API keys and none was made: make one, `gqctl key create NAME --allow all`, "
                        f"before it starts, or set {'metrics.open' if key.startswith('metrics.') else 'security.insecure'}")
