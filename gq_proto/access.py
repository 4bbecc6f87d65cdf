"""Who may do what: keys as they are known at some moment, and the access that one of them gives.

    ring = Keyring(); ring.take(keys)                  # as metad spreads them
    access = ring.of_token(token, wall_us)             # Unauthorized
    access.may(PUBLISH, topic="orders")                # True, False
    access.need(CONSUME, topic="orders", group="g")    # or Forbidden

An Access is valid until `expires_us`, and until the ring takes other keys: whoever keeps one looks at both. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Final

from gq_proto import keys
from gq_proto.errors import Forbidden, Unauthorized, UnknownTopicId
from gq_proto.keys import VERBS
from gq_proto.messages import KeyMeta, Scope

ANY: Final = "any"           # at least one verb
NODE: Final = "node"         # the daemons' own business
WRONG: Final = "no valid API key: the key is wrong, has expired or was revoked"
MISSING: Final = "an API key is needed here: make one with `gqctl key create` and give it as `key` or GOQUEUE_KEY"
Names = Callable[[int], str | None]


class Access:
    """What one caller may do. `topic` and `group` are names; "" is not asked about."""

    __slots__ = ("_by_id", "_scopes", "key", "node")

    def __init__(self, key: KeyMeta) -> None:
        self.key = key
        self.node = key.node
        self._scopes = key.scopes
        self._by_id: dict[tuple[str, int], bool] = {}

    @property
    def name(self) -> str:
        """For logs and quotas."""
        return self.key.name

    def expired(self, wall_us: int) -> bool:
        return 0 < self.key.expires_us <= wall_us

    def may(self, verb: str, topic: str = "", group: str = "") -> bool:
        """`verb`: one of VERBS, or ANY. With both names one scope must cover both."""
        if self.node:
            return True
        return any((scope.verb == verb or (verb == ANY and scope.verb in VERBS)) and _covers(scope, topic, group)
                   for scope in self._scopes)

    def need(self, verb: str, topic: str = "", group: str = "") -> None:
        """Forbidden, in the same words whether the topic or group exists or not."""
        if not self.may(verb, topic, group):
            raise self.refusal(verb)

    def sees(self, topic: str) -> bool:
        return self.may(ANY, topic)

    def sees_group(self, group: str) -> bool:
        return self.may(ANY, "", group)

    def owns_all(self) -> bool:
        """May administer everything, keys too."""
        return self.node or any(s.verb == keys.ADMIN and s.topics == s.groups == "*" for s in self._scopes)

    def need_metrics(self) -> None:
        """Forbidden for who may not read what Prometheus reads, which names all topics and groups."""
        if not (self.owns_all() or any(scope.verb == keys.METRICS for scope in self._scopes)):
            raise self.refusal(keys.METRICS)

    def need_id(self, verb: str, topic_id: int, names: Names) -> None:
        """need() for a topic by its id. UnknownTopicId for one that nobody knows: 63 random bits give nothing away."""
        allowed = self._by_id.get((verb, topic_id))
        if allowed is None:
            name = names(topic_id)
            if name is None:
                raise UnknownTopicId(f"topic id {topic_id} is not known here")
            allowed = self._by_id[verb, topic_id] = self.may(verb, name)
        if not allowed:
            raise self.refusal(verb)

    def refusal(self, verb: str) -> Forbidden:
        what = {ANY: "anything", NODE: "that"}.get(verb, verb)
        return Forbidden(f"the key {self.name} may not do that ({what}): ask for a key with that scope")


def _covers(scope: Scope, topic: str, group: str) -> bool:
    return (not topic or keys.matches(scope.topics, topic)) and (not group or keys.matches(scope.groups, group))


class Keyring:
    """All keys there are. `known` is False until it was told of any state of them."""

    def __init__(self) -> None:
        self.known = False
        self._by_id: dict[str, KeyMeta] = {}
        self._by_curve: dict[str, KeyMeta] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def count(self, own: str = "") -> int:
        """Keys that can let somebody in: those with a secret, and with `own` (a CURVE key) other CURVE keys than that."""
        return sum(not key.curve or (own != "" and key.curve != own) for key in self._by_id.values())

    def take(self, all_keys: Iterable[KeyMeta]) -> None:
        self._by_id = {key.id: key for key in all_keys}
        self._by_curve = {key.curve: key for key in self._by_id.values() if key.curve}
        self.known = True

    def of_token(self, token: bytes, wall_us: int) -> Access:
        """Unauthorized says no more than that; as much work for an unknown key as for a wrong secret."""
        id, secret = keys.split(token) or ("", b"")
        key = self._by_id.get(id)
        if not keys.is_tokens(key, secret) or key is None:
            raise Unauthorized(WRONG if token else MISSING)
        return self._valid(Access(key), wall_us)

    def of_curve(self, public: str, wall_us: int) -> Access:
        """By the CURVE key of a connection, which proved that it has the secret half."""
        key = self._by_curve.get(public)
        if key is None:
            raise Unauthorized(MISSING)
        return self._valid(Access(key), wall_us)

    def _valid(self, access: Access, wall_us: int) -> Access:
        if access.expired(wall_us):
            raise Unauthorized(WRONG)
        return access
