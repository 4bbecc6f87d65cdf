"""Keys: how one is made, and found.

Owns the decisions about API keys, CURVE keys and nodes; the state itself is State's. A secret exists in the reply that shows it and
nowhere else: what is logged has its hash. Pure: chance is handed in.
"""

from collections.abc import Callable
from typing import Final

from gq_metad.state import State
from gq_proto import keys, limits, messages
from gq_proto.errors import AlreadyExists, BadRequest, Busy, NotFound, Unauthorized
from gq_proto.messages import KeyMeta
from gq_proto.names import check_name

EXPIRES_US_MAX: Final = 1 << 53

def decide(state: State, body: messages.CreateKey, wall_us: int, new_id: Callable[[int], int]) -> tuple[KeyMeta, str]:
    """The key to keep, and the token to show ("" for one that is known by its CURVE key)."""
    check_name("key", body.name)
    if find(state, body.name):
        raise AlreadyExists(f"there is a key {body.name} already: revoke it first, or use another name")
    if len(state.keys) >= limits.KEYS_MAX:
        raise Busy(f"there are {limits.KEYS_MAX} keys: revoke one first")
    if body.expires_us and not wall_us < body.expires_us <= EXPIRES_US_MAX:
        raise BadRequest("expires_us is not in the future")
    scopes = keys.check_scopes(body.scopes)
    if not scopes and not body.node:
        raise BadRequest("a key without a scope could do nothing: give it one, such as publish:orders.*")
    id = _new_id(state, new_id)
    if body.curve or body.node:
        return _known_by_curve(state, id, body, wall_us), ""
    token, salt = keys.make_token(id, new_id(keys.SECRET_BITS)), new_id(keys.SALT_BITS).to_bytes(keys.SALT_BITS // 8, "big")
    return KeyMeta(id, body.name, scopes, wall_us, body.expires_us, salt=salt, hash=keys.hash_of(token, salt)), token


def _known_by_curve(state: State, id: str, body: messages.CreateKey, wall_us: int) -> KeyMeta:
    keys.check_curve(body.curve)
    taken = of_curve(state, body.curve)
    if taken:
        raise AlreadyExists(f"the key {taken.name} has that CURVE key: revoke it first")
    return KeyMeta(id, body.name, body.scopes, wall_us, body.expires_us, body.curve, body.node)


def of_node(state: State, node_id: str, curve: str, wall_us: int, new_id: Callable[[int], int]) -> KeyMeta | None:
    """The key by which a node that registered from here is known to others; None when it is already."""
    if not curve or of_curve(state, keys.check_curve(curve)):
        return None
    id = _new_id(state, new_id)
    name = node_id if not find(state, node_id) else f"{node_id[:limits.NAME_MAX - len(id) - 1]}.{id}"
    return KeyMeta(id, name, [], wall_us, curve=curve, node=True)


def find(state: State, named: str) -> KeyMeta | None:
    """By id or name."""
    return state.keys.get(named) or next((key for key in state.keys.values() if key.name == named), None)


def of_curve(state: State, curve: str) -> KeyMeta | None:
    return next((key for key in state.keys.values() if key.curve == curve), None)


def existing(state: State, named: str) -> KeyMeta:
    key = find(state, named)
    if key is None:
        raise NotFound(f"there is no key {named!r:.220}: see `gqctl key list`")
    return key


def owner(state: State, token: bytes, wall_us: int) -> KeyMeta:
    """Whose token it is, without what it is checked by."""
    id, secret = keys.split(token) or ("", b"")
    key = state.keys.get(id)
    if not keys.is_tokens(key, secret) or key is None or 0 < key.expires_us <= wall_us:
        raise Unauthorized("no valid API key: it is wrong, has expired or was revoked")
    return keys.public(key)


def _new_id(state: State, new_id: Callable[[int], int]) -> str:
    while True:
        id = f"{new_id(keys.ID_BITS):012x}"
        if id not in state.keys:
            return id
