"""Who is asking, and may they? Keys as metad spreads them, checked without asking metad.

Every listener is of one of two kinds. A trusted one takes requests as they come: ipc in the runtime directory (mode 0700),
loopback tcp unless `security.require` says tcp, everything under `security.insecure`. A guarded one (public tcp) speaks CURVE and
wants of each request an API key in the envelope's token, or that the connection's CURVE key is known to metad.

    Verifier    token (or CURVE key) -> Access; for daemons, and for a gateway that checks its own callers
    Guard       what a Server asks about a guarded listener: admit(), shown()

For a gateway, which is a trusted client of metad and follows the keys itself:

    verifier = Verifier()
    while True:                                                    # a task; before the first answer access() is Unavailable
        reply, _ = await client.call(Kind.METADATA, verifier.question(), to=METAD, timeout=FOLLOW_S)
        verifier.take(reply)

    access = verifier.access(token)                                # Unauthorized -> 401; token: str or bytes, "" when none came
    access.need(PUBLISH, topic="orders")                           # Forbidden -> 403, in the same words whether it exists or not
    access.need(CONSUME, topic="orders", group="billing")
    access.sees("orders"), access.sees_group("billing")            # which names a listing shows
    access.name                                                    # for logs and quotas; never log a token

Verbs are in gq_proto.keys, the right that each kind of native request needs in gq_proto.rights. Whether a listener at an address
needs keys at all says `needs_keys(config, address)`; `check_any(config, key, verifier)` refuses a public one while no key was made.
Never logs a token.
"""

import time
from collections.abc import Callable
from typing import Final

from gq_proto import messages
from gq_proto.access import Access, Keyring
from gq_proto.errors import BadConfig, Unavailable
from gq_run import paths
from gq_run.options import Config

FOLLOW_MS: Final = 30_000
FOLLOW_S: Final = FOLLOW_MS / 1000 + 5
CACHED_MAX: Final = 10_000       # callers whose access is remembered; when there are more, all are looked up anew


class Verifier:
    """Tokens and CURVE keys to what they may. Decisions are remembered until keys change or an access expires."""

    def __init__(self, wall_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._wall_us = wall_us
        self._ring = Keyring()
        self._known: dict[tuple[str, bytes], Access] = {}
        self.version = 0             # of the metadata taken last
        self.round = 0               # grows whenever keys may have changed

    def question(self) -> messages.Metadata:
        """What to ask metad next: waits there for news, no longer than FOLLOW_S."""
        return messages.Metadata(self.version, FOLLOW_MS, topics=[], keys=True)

    def take(self, reply: messages.MetadataReply) -> None:
        """An answer to question(), or any that brought keys along."""
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

    def __len__(self) -> int:
        return len(self._ring)

    def access(self, token: str | bytes, curve: str = "") -> Access:
        """Of who sends this token; without one, of who has this CURVE key. Unauthorized; Unavailable before metad's first word."""
        key = (curve, token.encode("utf-8", "replace") if isinstance(token, str) else token)
        found = self._known.get(key)
        if found is None or found.expired(self._wall_us()):
            found = self._look_up(*key)
        return found

    def _look_up(self, curve: str, token: bytes) -> Access:
        if not self._ring.known:
            raise Unavailable("the keys are not known yet: metad has not answered")
        found = self._ring.of_token(token, self._wall_us()) if token or not curve else self._ring.of_curve(curve, self._wall_us())
        if len(self._known) >= CACHED_MAX:
            self._known.clear()
        self._known[curve, token] = found
        return found


# -- listeners -------------------------------------------------------------------------------

def needs_keys(config: Config, address: str) -> bool:
    """Is a listener at "host:port" guarded? BadConfig for what is no address."""
    host, _ = paths.split_address(address)
    if config.switch("security.insecure"):
        return False
    return config.text("security.require") == "tcp" or not paths.is_loopback(host)


def check_any(config: Config, key: str, verifier: Verifier) -> None:
    """BadConfig when the listener of option `key` is guarded and open to other machines, but nobody could ever get in."""
    address = config.text(key)
    if needs_keys(config, address) and verifier.known and not len(verifier):
        raise BadConfig(f"{key}: {address!r} needs API keys and none was made: make one with `gqctl key create` while it listens "
                        "on 127.0.0.1, or set security.insecure")
