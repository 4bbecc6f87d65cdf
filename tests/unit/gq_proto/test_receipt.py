import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto.errors import GoQueueError
from gq_proto.receipt import Receipt, parse_receipt, parse_receipts, texts

RECEIPTS = st.builds(Receipt, st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True), st.integers(0, 9999),
                     st.integers(0, 2**63 - 1), st.integers(1, 10**6), st.integers(0, 15), st.integers(0, 2**32 - 1),
                     st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
GOOD = Receipt("jobs", 3, 17, 1, 5, 2, 2**63, 77)


@given(RECEIPTS)
def test_there_and_back(receipt: Receipt) -> None:
    assert parse_receipt(receipt.text()) == receipt
    assert parse_receipt(f" {receipt.text()}\n") == receipt


def test_as_printed() -> None:
    assert GOOD.text() == "jobs:3:17:1:AAUAAAACgAAAAAAAAAAAAABN"


@pytest.mark.parametrize("cut", range(len(GOOD.text())))
def test_cut_anywhere(cut: int) -> None:
    with pytest.raises(GoQueueError):
        parse_receipt(GOOD.text()[:cut])


@given(st.text(max_size=60))
def test_garbage_is_a_typed_error(text: str) -> None:
    try:
        parse_receipt(text)
    except GoQueueError:
        pass


@pytest.mark.parametrize("bad", ["jobs:-1:17:1:", "jobs:3:17:0:", "jobs:3:٣:1:", "jobs:03:17:1:", "a/b:3:17:1:",
                                 f"jobs:3:{2**63}:1:"])
def test_wrong_fields(bad: str) -> None:
    with pytest.raises(GoQueueError):
        parse_receipt(bad + GOOD.text().rsplit(":", 1)[1])


@given(RECEIPTS, st.lists(st.integers(0, 2**63 - 1), max_size=5), st.lists(st.text(max_size=40), max_size=2))
def test_many_at_once_are_what_each_is_alone(receipt: Receipt, offsets: list[int], garbage: list[str]) -> None:
    given_texts = [*texts(receipt, offsets), *garbage, receipt.text(), *(f"{text}:" for text in texts(receipt, offsets)),
                   *(text.replace(":", ":0", 2) for text in texts(receipt, offsets))]
    for text, found in zip(given_texts, parse_receipts(given_texts), strict=True):
        try:
            assert found == parse_receipt(text)
        except GoQueueError as error:
            assert (type(found), str(found)) == (type(error), str(error))
    assert texts(receipt, offsets) == [receipt._replace(offset=offset).text() for offset in offsets]
