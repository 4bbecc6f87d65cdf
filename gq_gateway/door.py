"""Who is asking, by HTTP or gRPC, and may they? The gateway is one of the node's daemons, so nobody behind it asks again.

A listener is trusted or guarded, by the same rule as a daemon's (gq_run.security.needs_keys): on loopback trusted, unless
`security.require` says tcp; public ones guarded, unless `security.insecure` is on. At a guarded one each request brings an API key,
as `Authorization: Bearer KEY` or `X-API-Key: KEY`, and is refused without a hint whether what it names exists.

Owns which listeners are guarded and the keys as metad tells them. Never logs a key, nor shows one.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from gq_proto.access import Access
from gq_proto.errors import Forbidden, Unauthorized
from gq_proto.keys import ADMIN, METRICS
from gq_proto.messages import MetadataReply
from gq_run import logs, paths, security
from gq_run.daemon import OFF
from gq_run.exporter import bearer
from gq_run.options import Config
from gq_run.security import Verifier

LISTENERS: Final = {"http": "http.address", "grpc": "grpc.address", "metrics": "metrics.listeners.node"}
EVERYTHING: Final = security.OWN_NODE           # what who comes by a trusted listener may do
MISSING: Final = "an API key is needed here: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
_log = logging.getLogger("goqueue.gateway")


class Door:
    """`guarded`: names of listeners that want keys. Without any everyone may do everything."""

    def __init__(self, guarded: Iterable[str] = (), verifier: Verifier | None = None,
                 log: logging.Logger = _log, now: Callable[[], float] = time.monotonic) -> None:
        self._guarded = frozenset(guarded)
        self.verifier = verifier or Verifier()
        self._log, self._now = log, now
        self._warn_at, self._warned_of = 0.0, 0
        self.unauthorized = 0        # requests without a valid key
        self.forbidden = 0           # questions whether a key may, answered no

    def admit(self, request: Any, verb: str, topic: str, group: str) -> Access:
        """See Gateway.authorize. Unauthorized, Forbidden; Unavailable before metad told of keys."""
        if not verb or request.listener not in self._guarded:
            return EVERYTHING
        access = self._identified(token_of(request))
        try:
            if verb == ADMIN and not (topic or group) and not access.owns_all():
                raise access.refusal(verb)
            if verb == METRICS:
                access.need_metrics()
            else:
                access.need(verb, topic, group)
        except Forbidden:
            self.forbidden += 1
            raise
        return access

    def _identified(self, token: str) -> Access:
        try:
            if not token:
                raise Unauthorized(MISSING)
            return self.verifier.access(token)
        except Unauthorized:
            self.unauthorized += 1
            self._warn()
            raise

    def _warn(self) -> None:
        if self._now() >= self._warn_at:
            self._warn_at = self._now() + security.WARN_S
            self._log.warning("requests without a valid key", extra=logs.fields(requests=self.unauthorized - self._warned_of))
            self._warned_of = self.unauthorized

    def take(self, reply: MetadataReply, config: Config) -> None:
        """Keys, as metad tells of them. BadConfig when a public listener could never let anybody in."""
        self.verifier.take(reply)
        for key in listening(config).values():
            security.check_any(config, key, self.verifier)


def token_of(request: Any) -> str:
    """The key that a request (of falcon, or an rpc.guard.Caller) brings; "" for none."""
    return bearer(request.get_header("Authorization") or "") or request.get_header("X-API-Key") or ""


def listening(config: Config) -> dict[str, str]:
    """The listeners that are not switched off, and the option that says where each is."""
    return {name: key for name, key in LISTENERS.items()
            if config.text(key) not in ("", OFF) and (name != "metrics" or config.switch("metrics.enabled"))}


def open_door(config: Config, log: logging.Logger) -> Door:
    """As the config wants it; warns of what is open or in clear on a network. BadConfig for what is no address."""
    guarded = []
    for name, key in listening(config).items():
        address = config.text(key)
        public = not paths.is_loopback(paths.split_address(address)[0])
        if security.needs_keys(config, key):
            guarded.append(name)
            if public and (name == "metrics" or not config.text(f"{name}.tls.certFile")):
                log.warning("keys and messages cross the network in clear: set a certificate, or put TLS before it",
                            extra=logs.fields(listener=name, address=address))
        elif public and name != "metrics":
            log.warning("open to everyone: security.insecure is on", extra=logs.fields(listener=name, address=address))
    return Door(guarded, log=log)
