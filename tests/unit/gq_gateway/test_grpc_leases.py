"""Receipts of subscribers are found while their consumer holds the lease, and only for what they name."""

import pytest

from gq_gateway.rpc.leases import SWEEP_FROM, Handed, Leases
from tests.unit.gq_gateway.grpc_fakes import held_of, message_of


def test_a_receipt_is_the_one_of_the_message_and_is_found() -> None:
    leases, held = Leases(), held_of(10, 3)
    handed = Handed(leases)
    for offset in (10, 11, 12):
        message = message_of(held, offset)
        receipt = handed.receipt(message)
        assert receipt == message.receipt
        found = leases.find(receipt)
        assert found and (found[0].held, found[1]) == (held, offset)


@pytest.mark.parametrize("old, new", [
    ("orders", "orderz"), (":1:11:", ":2:11:"), (":11:", ":13:"), (":11:", ":011:"), (":11:", ":-11:"), (":11:", "::"),
    (":11:", ":1\u0661:"), (":11:", f":{'9' * 40}:"), (":11:1:", ":11:2:"), ("orders", " orders"), ("orders:1:11:1:", "")])
def test_what_names_no_message_of_the_lease_is_not_found(old: str, new: str) -> None:
    leases, held = Leases(), held_of(10, 3)
    receipt = Handed(leases).receipt(message_of(held, 11))
    assert leases.find(receipt.replace(old, new)) is None and leases.find(receipt)
    assert leases.find("") is None and leases.find(receipt[:-1] + "!") is None


def test_a_lease_with_holes() -> None:
    leases, held = Leases(), held_of(20, 2, 10, 1)
    handed = Handed(leases)
    receipt = handed.receipt(message_of(held, 20))
    assert [bool(leases.find(receipt.replace(":20:", f":{offset}:"))) for offset in (9, 10, 11, 19, 20, 21, 22)] == [
        False, True, False, False, True, True, False]


def test_what_the_consumer_is_done_with_or_lost_is_settled_by_text() -> None:
    leases, held = Leases(), held_of(10, 1)
    receipt = Handed(leases).receipt(message_of(held, 10))
    held.lost = True
    assert leases.find(receipt) is None
    held.lost, held.todo = False, []
    held.acked.append(10)
    assert leases.find(receipt)
    held.take_ops()
    assert held.done and leases.find(receipt) is None


def test_in_flight_counts_each_message_once() -> None:
    leases, held = Leases(), held_of(10, 3)
    handed = Handed(leases)
    rooms: list[int] = []
    handed.on_room = lambda: rooms.append(handed.in_flight())
    receipts = [handed.receipt(message_of(held, offset)) for offset in (10, 11, 12)]
    assert handed.in_flight() == 3
    sent, offset = leases.find(receipts[1]) or pytest.fail()
    sent.settled(offset)
    sent.settled(offset)
    assert rooms == [2, 2]


def test_leases_that_are_over_are_forgotten_and_all_with_their_subscriber() -> None:
    leases = Leases()
    handed, other = Handed(leases), Handed(leases)
    other.receipt(message_of(held_of(1, 1, number=10_000), 1))
    for number in range(10 * SWEEP_FROM):
        held = held_of(number, 1, number=number)
        handed.receipt(message_of(held, number))
        if number % 100:
            held.lost = True
    assert len(leases.by_nonce) <= 2 * SWEEP_FROM + 1
    assert handed.in_flight() >= 6
    handed.clear()
    assert len(leases.by_nonce) == 1 and other.in_flight() == 1
