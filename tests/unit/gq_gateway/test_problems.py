"""Errors as problems: every error of ours has a status, msgspec's words name the field, insides stay inside."""

import json

import msgspec
import pytest

from gq_gateway import problems
from gq_gateway.content import NewMessage
from gq_gateway.problems import HttpError, Refused, encode, field_of, invalid, problem_of, status_of
from gq_gateway.publishing import Batch
from gq_proto import errors as e
from gq_proto.errors import BY_CODE, GoQueueError


def test_every_error_of_the_protocol_has_its_status() -> None:
    missing = [error.name for error in BY_CODE.values() if not any(kind in problems.STATUS for kind in error.__mro__)]
    assert missing == ["error"] or not missing
    assert all(status_of(error("x")) in problems.TITLES for error in BY_CODE.values())


@pytest.mark.parametrize(("error", "status"), [
    (e.BadName("x"), 400), (e.Unauthorized("x"), 401), (e.Forbidden("x"), 403), (e.UnknownTopic("x"), 404),
    (e.StaleReceipt("x"), 409),
    (e.Fenced("x"), 409), (e.TooLarge("x"), 413), (e.Busy("x"), 503), (e.NotLeader("x"), 503), (e.Corrupt("x"), 500)])
def test_statuses_are_those_of_the_specification(error: GoQueueError, status: int) -> None:
    assert status_of(error) == status


def test_codes_are_stable_and_no_two_errors_share_one() -> None:
    names = [error.name for error in BY_CODE.values()] + [kind.name for kind in HttpError.__subclasses__()]
    assert len(set(names)) == len(names)


def test_what_a_problem_says() -> None:
    problem = json.loads(encode(problem_of(Refused(e.BadRequest("priority 9: use 0..4"), "priority"))))
    assert problem == {"type": "urn:goqueue:problem:bad_request", "title": "Bad request", "status": 400,
                       "detail": "priority 9: use 0..4", "code": "bad_request", "retriable": False, "field": "priority"}
    assert "field" not in json.loads(encode(problem_of(e.Busy("full"))))
    assert problem_of(e.Busy("full")).retriable


def test_insides_are_not_told() -> None:
    assert "secret" not in problem_of(e.Internal("secret path /x")).detail
    assert "secret" not in problem_of(GoQueueError("secret")).detail


def test_a_closed_client_means_that_this_gateway_stops() -> None:
    assert problem_of(e.Closed("x")).retriable and problem_of(e.Closed("x")).status == 503


@pytest.mark.parametrize(("body", "field"), [
    (b'{"messages":[{"value":"a"},{"value":1}]}', "messages[1].value"),
    (b'{"messages":[{"value":"a","x":1}]}', "messages[0].x"),
    (b'{"messages":[{}]}', "messages[0].value"),
    (b'{"messages":[{"value":"a","headers":{"h":1}}]}', "messages[0].headers[...]"),
    (b'{}', "messages"),
    (b'{"messages":[]}', "messages")])
def test_the_field_is_found_in_msgspecs_words(body: bytes, field: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(body, type=Batch)
    error = invalid(raised.value)
    assert isinstance(error, Refused) and error.field == field
    assert problem_of(error).detail.startswith(field)


@pytest.mark.parametrize("body", [b"", b"{", b"{]", b'{"value":"\xff"}', b'{"value":"a"} x', b'{"value":"\\ud800"}'])
def test_what_is_no_json_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(ValueError) as raised:
        msgspec.json.decode(body, type=NewMessage)
    assert problem_of(invalid(raised.value)).code == "bad_request"


def test_a_message_about_the_whole_body_has_no_field() -> None:
    assert field_of("Expected `object`, got `array`") == ("", "Expected `object`, got `array`")
