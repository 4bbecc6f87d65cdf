"""Dead letters of a topic, beside the node (see gq_client.letters) or behind its gateway."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gq_client import Client
    from gq_client.letters import Letter


def letters(client: "Client", topic: str, partition: int | None = None) -> Iterator["Letter"]:
    """Outstanding ones, by partition and offset. UnknownTopic."""
    from gq_client.letters import Choice, Letter, choose
    from gq_ctl.remote import Remote, message_of
    if isinstance(client, Remote):
        for one in client.letters(topic, partition):
            place = {**one["message"], "partition": one["partition"], "offset": one["offset"]}
            yield Letter(message_of(place), one["originTopic"], one["originPartition"], one["originOffset"], one["attempts"],
                         one["reason"], one["deadAt"], one["group"])
        return
    more, after = True, (-1, -1)
    while more:
        found, more = client.run(choose(client.routes, topic, Choice(partition=partition, after=after)))
        yield from found
        after = (found[-1].record.partition, found[-1].record.offset) if found else after
        more = more and bool(found)


def count(client: "Client", topic: str) -> int:
    """How many are outstanding."""
    from gq_client.letters import count_outstanding
    from gq_ctl.remote import Remote
    if isinstance(client, Remote):
        return sum(1 for _ in letters(client, topic))
    return client.run(count_outstanding(client.routes, topic))
