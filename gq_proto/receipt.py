"""Receipts: one delivery of one message, as text that any process can hand back later.

    topic:partition:offset:delivery:nonce
    nonce = base64url without padding of >HIQI: __groups partition, group number, lease, random

All that routing and staleness need is in it: whoever has the text may settle the message. Topic names hold no colon.
The random number is the lease's: a receipt cannot be guessed from others.
"""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, NamedTuple

from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.limits import GROUPS_PARTITIONS
from gq_proto.names import check_name

NONCE: Final = struct.Struct(">HIQI")
_NONCE_TEXT: Final = 24      # 18 bytes need no padding
_DIGITS_MAX: Final = 20
assert NONCE.size * 4 == _NONCE_TEXT * 3


class Receipt(NamedTuple):
    """A parsed receipt. `delivery` is 1 for the first hand-out."""

    topic: str
    partition: int
    offset: int
    delivery: int
    groups_partition: int
    group_number: int
    lease: int
    random: int

    def text(self) -> str:
        nonce = urlsafe_b64encode(NONCE.pack(self.groups_partition, self.group_number, self.lease, self.random)).decode()
        return f"{self.topic}:{self.partition}:{self.offset}:{self.delivery}:{nonce}"


def texts(receipt: Receipt, offsets: Iterable[int]) -> list[str]:
    """Of other messages of the same lease."""
    nonce = receipt.text().rpartition(":")[2]
    before, after = f"{receipt.topic}:{receipt.partition}:", f":{receipt.delivery}:{nonce}"
    return [f"{before}{offset}{after}" for offset in offsets]


def parse_receipts(given: Iterable[str]) -> list[Receipt | GoQueueError]:
    """Each as parse_receipt, or why it is none. Those of one lease differ in the offset only and share the work."""
    known: dict[tuple[str, str, str], Receipt] = {}
    found: list[Receipt | GoQueueError] = []
    for text in given:
        place, _, rest = text.partition(":")
        number, _, rest = rest.partition(":")
        digits, _, rest = rest.partition(":")
        first = known.get((place, number, rest))
        if first is not None and digits.isascii() and digits.isdigit() and len(digits) < 19 and (digits[0] != "0" or digits == "0"):
            found.append(Receipt(first[0], first[1], int(digits), *first[3:]))
            continue
        try:
            known[place, number, rest] = receipt = parse_receipt(text)
            found.append(receipt)
        except GoQueueError as error:
            found.append(error)
    return found


def parse_receipt(text: str) -> Receipt:
    """BadRequest when `text` is not a receipt. Whether it is still good only its groupd knows."""
    fields = text.strip().split(":")
    if len(fields) != 5 or len(fields[4]) != _NONCE_TEXT:
        raise _bad(text)
    check_name("topic", fields[0])
    try:
        nonce = NONCE.unpack(urlsafe_b64decode(fields[4].encode("ascii")))
    except (ValueError, UnicodeEncodeError, struct.error):
        raise _bad(text) from None
    receipt = Receipt(fields[0], *(_number(digits, text) for digits in fields[1:4]), *nonce)
    if receipt.groups_partition >= GROUPS_PARTITIONS or receipt.delivery < 1 or receipt.text() != text.strip():
        raise _bad(text)
    return receipt


def _number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
        raise _bad(text)
    number = int(digits)
    if number >= 2**63:
        raise _bad(text)
    return number


def _bad(text: str) -> BadRequest:
    return BadRequest(f"bad receipt {text!r:.120}: give it as it was printed, topic:partition:offset:delivery:nonce")
