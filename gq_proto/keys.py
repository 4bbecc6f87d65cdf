"""API keys: what their text looks like, what is kept of them, and how a scope is written.

    token     gq_{id}_{secret}     id: 12 hex digits; secret: 256 random bits, base64url without padding (43 characters)
    kept      id, salt (16 random bytes), BLAKE2b-256 of the secret under the salt as its key: enough, because a secret of 256
              random bits cannot be guessed, so no slow hash is needed, and each request can be checked
    scope     VERB[:TOPICS[:GROUPS]]   verb publish, consume, admin or all (the three); patterns with * for any characters.
              TOPICS left out: all. GROUPS left out: all for consume and for admin of all topics, else none.
              metrics, alone: what Prometheus reads; admin of everything includes it

Owns the form of tokens, hashes and scopes, and comparing in constant time. Never makes chance: salts and secrets are handed in.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Final

from gq_proto import limits
from gq_proto.errors import BadRequest
from gq_proto.messages import KeyMeta, Scope

PUBLISH: Final = "publish"
CONSUME: Final = "consume"
ADMIN: Final = "admin"
ALL: Final = "all"
METRICS: Final = "metrics"
VERBS: Final = (PUBLISH, CONSUME, ADMIN)         # what a key may do with topics and groups

ID_BITS: Final = 48
SECRET_BITS: Final = 256
SALT_BITS: Final = 128
PREFIX: Final = "gq_"
TOKEN_MAX: Final = 128
_PERSON: Final = b"goqueue-api-key"
_TOKEN: Final = re.compile(rb"gq_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_PATTERN: Final = re.compile(rf"[A-Za-z0-9._*-]{{0,{limits.NAME_MAX}}}", re.ASCII)
_CURVE: Final = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}", re.ASCII)
_NOBODY: Final = KeyMeta("", "", [], 0, salt=bytes(SALT_BITS // 8), hash=bytes(32))


# -- tokens ------------------------------------------------------------------------------

def make_token(id: str, secret_bits: int) -> str:
    """`secret_bits`: SECRET_BITS of chance as a number."""
    secret = base64.urlsafe_b64encode(secret_bits.to_bytes(SECRET_BITS // 8, "big")).rstrip(b"=").decode()
    token = f"{PREFIX}{id}_{secret}"
    assert _TOKEN.fullmatch(token.encode())
    return token


def hash_of(token: str, salt: bytes) -> bytes:
    """What is kept of a token's secret."""
    parts = split(token.encode())
    assert parts
    return _hash(parts[1], salt)


def split(token: bytes) -> tuple[str, bytes] | None:
    """(id, secret) of a well-formed token."""
    match = _TOKEN.fullmatch(token)
    return (match[1].decode(), match[2]) if match else None


def is_tokens(key: KeyMeta | None, secret: bytes) -> bool:
    """Is `secret` that of `key`? As much work for no key as for a wrong secret."""
    against = key if key and key.hash else _NOBODY
    same = hmac.compare_digest(_hash(secret, against.salt), against.hash)
    return same and against is key


def _hash(secret: bytes, salt: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=32, key=salt, person=_PERSON).digest()


def public(key: KeyMeta) -> KeyMeta:
    """A key without what it is checked by."""
    return KeyMeta(key.id, key.name, key.scopes, key.created_us, key.expires_us, key.curve, key.node)


def check_curve(text: str) -> str:
    """A public CURVE key as 40 characters of z85; BadRequest."""
    if not _CURVE.fullmatch(text):
        raise BadRequest("that is no public CURVE key: it has 40 characters, see `gqctl key curve`")
    return text


# -- scopes ------------------------------------------------------------------------------

def matches(pattern: str, name: str) -> bool:
    """Does `pattern` cover `name`? Internal names (__) only by a pattern that begins so. Linear in the name's length."""
    if name.startswith("__") and not pattern.startswith("__"):
        return False
    first, *rest = pattern.split("*")
    if not rest:
        return first == name
    *middle, last = rest
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def parse_scopes(text: str) -> list[Scope]:
    """The scopes that "consume:orders.*:billing" stands for; three for "all". BadRequest says what is legal."""
    verb, *patterns = text.split(":")
    if text == METRICS:
        return [Scope(METRICS, "", "")]
    if len(patterns) > 2 or verb not in (*VERBS, ALL):
        raise BadRequest(f"bad scope {text!r:.220}: use VERB[:TOPICS[:GROUPS]] with publish, consume, admin or all; or metrics")
    topics = patterns[0] if patterns else "*"
    scopes = [Scope(one, topics, _groups(one, topics, patterns)) for one in (VERBS if verb == ALL else (verb,))]
    return check_scopes(scopes)


def _groups(verb: str, topics: str, patterns: Sequence[str]) -> str:
    if verb == PUBLISH:
        return ""
    if len(patterns) > 1:
        return patterns[1]
    return "*" if verb == CONSUME or topics == "*" else ""


def show_scope(scope: Scope) -> str:
    """parse_scopes(show_scope(s)) == [s]."""
    if scope.verb == METRICS:
        return METRICS
    return f"{scope.verb}:{scope.topics}" if scope.verb == PUBLISH else f"{scope.verb}:{scope.topics}:{scope.groups}"


def check_scopes(scopes: Iterable[Scope]) -> list[Scope]:
    """BadRequest names what is wrong."""
    checked = list(scopes)
    if len(checked) > limits.KEY_SCOPES_MAX:
        raise BadRequest(f"{len(checked)} scopes: a key has {limits.KEY_SCOPES_MAX} at most, use patterns")
    for scope in checked:
        if scope.verb not in (*VERBS, METRICS):
            raise BadRequest(f"bad verb {scope.verb!r:.100} of a scope: use publish, consume, admin or metrics")
        for what, pattern in (("topics", scope.topics), ("groups", scope.groups)):
            if not _PATTERN.fullmatch(pattern):
                raise BadRequest(f"bad pattern {pattern!r:.220} for {what}: use what is legal in names, and *")
    return checked
