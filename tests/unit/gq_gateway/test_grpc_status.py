"""Every error has a status; what the proto tells callers is that."""

import re
from pathlib import Path

import pytest
from grpc import StatusCode

from gq_gateway.rpc.status import as_message, is_retriable, status_of, trailers
from gq_proto.errors import BY_CODE, Busy, Closed, Forbidden, GoQueueError, StaleReceipt, UnknownTopic

PROTO = Path(__file__).parents[3] / "gq_gateway/goqueue.proto"
ERRORS = sorted(BY_CODE.values(), key=lambda error: error.code)


def documented() -> dict[str, str]:
    """name: status, as the head of the proto says."""
    text = PROTO.read_text().split("Errors.")[1].split("// Keys.")[0]
    statuses = "|".join(code.name for code in StatusCode)
    parts = re.split(rf"\b({statuses})\b", text)
    names = {error.name for error in ERRORS}
    return {name: status for status, words in zip(parts[1::2], parts[2::2])
            for name in re.findall(r"[a-z_]+", words) if name in names}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.name)
def test_each_error_has_the_status_that_the_proto_documents(kind: type[GoQueueError]) -> None:
    said = documented()
    assert status_of(kind("x")).name == said.get(kind.name, "")


@pytest.mark.parametrize("error, status", [
    (UnknownTopic("x"), StatusCode.NOT_FOUND), (StaleReceipt("x"), StatusCode.FAILED_PRECONDITION),
    (Busy("x"), StatusCode.RESOURCE_EXHAUSTED), (Forbidden("x"), StatusCode.PERMISSION_DENIED)])
def test_some_of_them_by_hand(error: GoQueueError, status: StatusCode) -> None:
    assert status_of(error) is status


def test_an_error_that_is_not_in_the_table_has_its_family_s_status() -> None:
    class OverQuota(Busy):
        name = "over_quota"

    assert status_of(OverQuota("x")) is StatusCode.RESOURCE_EXHAUSTED


def test_trailers_and_results_say_the_name_and_whether_a_retry_helps() -> None:
    assert trailers(Busy("full")) == (("goqueue-code", "busy"), ("goqueue-retriable", "true"))
    assert trailers(UnknownTopic("x")) == (("goqueue-code", "unknown_topic"), ("goqueue-retriable", "false"))
    message = as_message(StaleReceipt("too late"))
    assert (message.code, message.retriable, message.message) == ("stale_receipt", False, "too late")
    assert is_retriable(Closed("stops"))
