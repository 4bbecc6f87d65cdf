"""Tokens, hashes and scopes of API keys."""

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto import keys
from gq_proto.errors import BadRequest
from gq_proto.messages import KeyMeta, Scope

SALT = bytes(range(16))
TOKEN = keys.make_token("0123456789ab", 2**255 + 7)
KEY = KeyMeta("0123456789ab", "k", [], 0, salt=SALT, hash=keys.hash_of(TOKEN, SALT))


def test_a_token_names_its_key_and_has_all_of_the_secret():
    id, secret = keys.split(TOKEN.encode())
    assert id == "0123456789ab" and len(secret) == 43
    assert keys.split(keys.make_token(id, 2**255 + 8).encode())[1] != secret


@pytest.mark.parametrize("token", [b"", b"gq_", TOKEN.encode() + b"x", TOKEN.encode()[:-1], b" " + TOKEN.encode(), b"\xff" * 59,
                                   TOKEN.encode() + b"\n", TOKEN.upper().encode()])
def test_what_is_no_token(token):
    assert keys.split(token) is None


def test_what_is_kept_is_no_secret_and_depends_on_the_salt():
    assert len(KEY.hash) == 32
    assert keys.split(TOKEN.encode())[1] not in KEY.hash
    assert keys.hash_of(TOKEN, b"x" * 16) != KEY.hash


def test_only_the_secret_fits_and_nobody_has_one():
    secret = keys.split(TOKEN.encode())[1]
    assert keys.is_tokens(KEY, secret)
    assert not keys.is_tokens(KEY, secret[:-1] + b"!")
    assert not keys.is_tokens(None, secret) and not keys.is_tokens(None, b"")
    assert not keys.is_tokens(KeyMeta("0123456789ab", "curve", [], 0, curve="x" * 40), secret)


def test_a_shown_key_has_nothing_to_check_it_by():
    shown = keys.public(KEY)
    assert (shown.salt, shown.hash) == (b"", b"") and shown.name == "k"


@given(st.text("ab*._", max_size=8), st.text("ab._", max_size=8))
def test_patterns_are_globs(pattern, name):
    if not name.startswith("__"):
        assert keys.matches(pattern, name) == bool(re.fullmatch(fnmatch.translate(pattern), name))


@pytest.mark.parametrize(("pattern", "name", "covered"), [
    ("*", "orders", True), ("*", "__groups", False), ("__*", "__groups", True), ("_*", "__groups", False), ("", "x", False),
    ("a*a", "a", False), ("orders.*", "orders", False), ("orders.*", "orders.eu", True), ("*.dlq", "orders.dlq", True)])
def test_patterns(pattern, name, covered):
    assert keys.matches(pattern, name) is covered


@pytest.mark.parametrize(("text", "scopes"), [
    ("publish", [Scope("publish", "*", "")]),
    ("publish:orders.*", [Scope("publish", "orders.*", "")]),
    ("consume", [Scope("consume", "*", "*")]),
    ("consume:orders", [Scope("consume", "orders", "*")]),
    ("consume:orders:billing-*", [Scope("consume", "orders", "billing-*")]),
    ("admin", [Scope("admin", "*", "*")]),
    ("admin:orders", [Scope("admin", "orders", "")]),
    ("metrics", [Scope("metrics", "", "")]),
    ("all", [Scope("publish", "*", ""), Scope("consume", "*", "*"), Scope("admin", "*", "*")]),
])
def test_scopes_as_written(text, scopes):
    assert keys.parse_scopes(text) == scopes
    for scope in scopes:
        assert keys.parse_scopes(keys.show_scope(scope)) == [scope]


@pytest.mark.parametrize("text", ["metrics:orders", "metrics:*:*", "", "read", "publish:a:b:c",
                                  "publish:a/b", "consume:a:ü", "publish:" + "x" * 197])
def test_bad_scopes(text):
    with pytest.raises(BadRequest):
        keys.parse_scopes(text)


def test_a_scopes_verb_and_number_are_bounded():
    with pytest.raises(BadRequest, match="verb"):
        keys.check_scopes([Scope("all")])
    with pytest.raises(BadRequest, match="at most"):
        keys.check_scopes([Scope("publish")] * 101)


def test_a_curve_key_has_forty_characters_of_z85():
    assert keys.check_curve("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7") == "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    for bad in ("", "x" * 39, "x" * 41, "x" * 39 + "~", "x" * 39 + "\n"):
        with pytest.raises(BadRequest):
            keys.check_curve(bad)
