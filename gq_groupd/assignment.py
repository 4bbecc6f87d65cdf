"""Which member may lease from which partition: range assignment, sticky.

Per topic every subscriber gets floor(n/m) or ceil(n/m) neighbouring partitions; who holds some keeps them up to its share, so only
what has to move moves. Who gets one more is who holds one more already, then who has least over all topics, then by name.
Pure and deterministic: the same input gives the same answer, and an answer fed back gives itself.
"""

from collections.abc import Mapping

Key = tuple[int, int]       # topic id, partition


def assign(partitions: Mapping[int, list[int]], subscribers: Mapping[int, list[str]], current: Mapping[Key, str]) -> dict[Key, str]:
    """partitions and subscribers by topic id. Partitions of topics without subscribers are left out of the answer."""
    totals = dict.fromkeys(sorted({m for members in subscribers.values() for m in members}), 0)
    target: dict[Key, str] = {}
    for topic_id in sorted(partitions):
        members = sorted(subscribers.get(topic_id, ()))
        if members:
            _assign_topic(topic_id, sorted(partitions[topic_id]), members, current, totals, target)
    return target


def _assign_topic(topic_id: int, numbers: list[int], members: list[str], current: Mapping[Key, str], totals: dict[str, int],
                  target: dict[Key, str]) -> None:
    held: dict[str, list[int]] = {member: [] for member in members}
    for number in numbers:
        owner = current.get((topic_id, number))
        if owner in held:
            held[owner].append(number)
    base, extra = divmod(len(numbers), len(members))
    by_claim = sorted(members, key=lambda m: (len(held[m]) <= base, totals[m], m))
    share = {member: base + (place < extra) for place, member in enumerate(by_claim)}
    kept = {member: held[member][:share[member]] for member in members}
    taken = {number for some in kept.values() for number in some}
    free = iter([number for number in numbers if number not in taken])
    for member in members:
        mine = kept[member] + [next(free) for _ in range(share[member] - len(kept[member]))]
        totals[member] += len(mine)
        for number in mine:
            target[topic_id, number] = member
