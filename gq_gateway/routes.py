"""The table of routes: every path that is answered. Routing, the OpenAPI document and the docs page are made of it.

Each path also answers below /v1. Errors listed are those beyond what every route may say (see openapi.COMMON).
"""

from typing import Final

from gq_gateway import (
    content,
    delays,
    docs,
    groups,
    letters,
    node,
    polling,
    publishing,
    reading,
    receipts,
    replaying,
    topics,
)
from gq_gateway.table import ADMIN, ANY_KEY, CONSUME, METRICS, PUBLISH, Route
from gq_proto.errors import (
    AlreadyExists,
    BadName,
    BadRecord,
    GroupNotEmpty,
    ModeMismatch,
    NotFound,
    OffsetOutOfRange,
    StaleReceipt,
    TooLarge,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)

TOPIC: Final = (BadName, UnknownTopic)
PART: Final = (BadName, UnknownTopic, UnknownPartition)

TOPICS: Final = (
    Route("POST", "/topics", topics.create, "Create a topic", "Topics", ANY_KEY, body=topics.NewTopic, reply=topics.Topic,
          status=201, also=(200,), errors=(BadName, AlreadyExists)),
    Route("GET", "/topics", topics.list_all, "List topics", "Topics", ANY_KEY, query=topics.TopicQuery, reply=topics.Topics),
    Route("GET", "/topics/{topic}", topics.describe, "Describe a topic and its partitions", "Topics", ANY_KEY, "topic",
          reply=topics.TopicDetail, errors=TOPIC),
    Route("PATCH", "/topics/{topic}", topics.alter, "Change settings, or add partitions", "Topics", ADMIN, "topic",
          body=topics.TopicChange, reply=topics.Topic, errors=TOPIC),
    Route("DELETE", "/topics/{topic}", topics.delete, "Delete a topic and all its messages", "Topics", ADMIN, "topic", status=204,
          errors=TOPIC),
    Route("POST", "/topics/{topic}/purge", topics.purge, "Remove the messages of a topic, from its beginning on", "Topics", ADMIN,
          "topic", body=topics.Purge, optional=True, reply=topics.Purged, errors=PART),
)

MESSAGES: Final = (
    Route("POST", "/topics/{topic}/publish", publishing.publish, "Publish a message", "Messages", PUBLISH, "topic",
          query=publishing.PublishQuery, body=content.NewMessage, reply=publishing.Place,
          errors=(*PART, BadRecord, TooLarge)),
    Route("POST", "/topics/{topic}/messages", publishing.publish_any, "Publish a message, or several as {\"messages\": [...]}",
          "Messages", PUBLISH, "topic", query=publishing.PublishQuery, body=content.NewMessage, raw=True,
          bodies=(content.NewMessage, publishing.Batch), reply=publishing.Place,
          replies=(publishing.Place, publishing.BatchResult), also=(207,), errors=(*PART, BadRecord, TooLarge)),
    Route("POST", "/topics/{topic}/batch", publishing.publish_batch, "Publish many, with a result each; 207 when some failed",
          "Messages", PUBLISH, "topic", query=publishing.PublishQuery, body=publishing.Batch, raw=True,
          reply=publishing.BatchResult, also=(207,), errors=(BadName, UnknownTopic, TooLarge)),
    Route("GET", "/topics/{topic}/messages", reading.read, "Read messages, without a group", "Messages", CONSUME, "topic",
          query=reading.ReadQuery, reply=reading.Messages, errors=(*PART, OffsetOutOfRange)),
    Route("GET", "/topics/{topic}/partitions/{partition}/messages", reading.read_partition, "Read one partition, without a group",
          "Messages", CONSUME, "topic", query=reading.PartitionReadQuery, reply=reading.Messages, errors=(*PART, OffsetOutOfRange)),
    Route("POST", "/topics/{topic}/replay", replaying.replay, "Deliver old messages again: to a group, or as copies to a topic",
          "Messages", CONSUME, "topic", body=replaying.Replay, reply=replaying.Replayed, errors=(*PART, UnknownGroup)),
)

GROUPS: Final = (
    Route("POST", "/groups/{group}/join", groups.join, "Become a member; a new group is made", "Groups", CONSUME, "group",
          body=groups.NewMember, reply=groups.Joined, errors=(BadName, ModeMismatch)),
    Route("POST", "/groups/{group}/leave", groups.leave, "Leave; messages held by receipt stay", "Groups", CONSUME, "group",
          body=groups.MemberName, status=204, errors=(BadName, UnknownGroup)),
    Route("POST", "/groups/{group}/heartbeat", groups.heartbeat, "Stay a member while not polling", "Groups", CONSUME, "group",
          body=groups.MemberName, reply=groups.Beat, errors=(BadName, UnknownGroup, UnknownMember)),
    Route("GET", "/groups/{group}/poll", polling.poll, "Take messages, waiting for the first", "Groups", CONSUME, "group",
          query=polling.PollQuery, reply=polling.Polled, errors=(BadName, UnknownGroup, UnknownMember, ModeMismatch)),
    Route("POST", "/groups/{group}/commit", groups.commit, "Ack everything below an offset", "Groups", CONSUME, "group",
          body=groups.Commit, reply=groups.Committed, errors=PART),
    *(Route("POST", f"/groups/{{group}}/{word}", receipts.handler(op, True), summary + " (receipts of this group)", "Groups",
            CONSUME, "group", body=receipts.BODIES[op], reply=receipts.SettledAll, also=(207,),
            errors=(BadName, UnknownGroup, StaleReceipt))
      for word, op, summary in receipts.WORDS),
    Route("GET", "/groups", groups.list_all, "List groups", "Groups", ANY_KEY, query=groups.GroupsQuery, reply=groups.Groups),
    Route("GET", "/groups/{group}", groups.describe, "Describe members and progress", "Groups", ANY_KEY, "group",
          reply=groups.Group, errors=(BadName, UnknownGroup)),
    Route("GET", "/groups/{group}/lag", groups.lag, "How many messages are not acked", "Groups", ANY_KEY, "group",
          query=groups.LagQuery, reply=groups.Lag, errors=(BadName, UnknownGroup)),
    Route("POST", "/groups/{group}/reset", groups.reset, "Move the group: what is before is done, the rest comes (again)", "Groups",
          ADMIN, "group", body=groups.Reset, reply=groups.ResetResult, errors=PART),
    Route("POST", "/groups/{group}/pause", groups.pause, "Hand out nothing more until resume", "Groups", ADMIN, "group", status=204,
          errors=(BadName, UnknownGroup)),
    Route("POST", "/groups/{group}/resume", groups.resume, "Go on after a pause", "Groups", ADMIN, "group", status=204,
          errors=(BadName, UnknownGroup)),
    Route("DELETE", "/groups/{group}", groups.delete, "Forget a group and what it acked", "Groups", ADMIN, "group",
          query=groups.DeleteQuery, status=204, errors=(BadName, UnknownGroup, GroupNotEmpty)),
)

RECEIPTS: Final = tuple(
    Route("POST", f"/messages/{word}", receipts.handler(op, False), summary, "Receipts", ANY_KEY, body=receipts.BODIES[op],
          reply=receipts.SettledAll, also=(207,), errors=(StaleReceipt,))
    for word, op, summary in receipts.WORDS)

DELAYS: Final = (
    Route("GET", "/topics/{topic}/delayed", delays.list_waiting, "List what waits for its time", "Delays", CONSUME, "topic",
          query=delays.DelayedQuery, reply=delays.WaitingPage, errors=PART),
    Route("DELETE", "/topics/{topic}/delayed/{partition}/{offset}", delays.cancel, "Cancel a delayed message", "Delays", PUBLISH,
          "topic", reply=delays.Cancelled, errors=(*PART, NotFound)),
    Route("GET", "/delay/stats", delays.stats, "Delayed messages by partition", "Delays", ANY_KEY, query=delays.StatsQuery,
          reply=delays.DelayStats, errors=(UnknownTopic,)),
    Route("GET", "/priority/stats", node.priorities, "What each priority holds, by group and partition", "Groups", ANY_KEY,
          query=node.StatsQuery, reply=node.PriorityStats, errors=(UnknownGroup,)),
)

LETTERS: Final = (
    Route("GET", "/topics/{topic}/dlq", letters.list_letters, "List dead letters", "Dead letters", CONSUME, "topic",
          query=letters.LettersQuery, reply=letters.DeadLetters, errors=PART),
    Route("POST", "/topics/{topic}/dlq/redrive", letters.redrive, "Give dead letters back to the group that failed them",
          "Dead letters", ADMIN, "topic", body=letters.Redrive, optional=True, reply=letters.Redriven, errors=PART),
    Route("DELETE", "/topics/{topic}/dlq", letters.purge, "Forget dead letters for good", "Dead letters", ADMIN, "topic",
          query=letters.Purge, reply=letters.Purged, errors=PART),
    Route("GET", "/reliability/stats", node.reliability, "Messages in flight, retrying and dead, by group", "Dead letters",
          ANY_KEY, query=node.StatsQuery, reply=node.ReliabilityStats, errors=(UnknownGroup,)),
)

NODE: Final = (
    Route("GET", "/admin/health", node.health, "Live and ready? 503 when not ready", "Node", reply=node.Health, also=(503,)),
    Route("GET", "/admin/metrics", node.metrics, "The metrics of all daemons, for Prometheus", "Node", METRICS,
          reply=node.METRICS_TYPE),
    Route("GET", "/admin/cluster", node.cluster, "The daemons and what each says of itself", "Node", ADMIN, reply=node.Cluster),
    Route("GET", "/openapi.json", docs.openapi, "This document", "Node", reply="application/json"),
    Route("GET", "/docs", docs.page, "The page for people", "Node", reply="text/html"),
)

ROUTES: Final = (*TOPICS, *MESSAGES, *GROUPS, *RECEIPTS, *DELAYS, *LETTERS, *NODE)
