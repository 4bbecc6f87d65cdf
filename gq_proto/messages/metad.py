"""What metad is asked and answers: topics, where partitions are, producers and keys."""

from typing import Any

from msgspec import Struct

from gq_proto import limits
from gq_proto.messages.kinds import Body


class TopicConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of one topic, all resolved. Sizes in bytes, -1 = unlimited."""

    retention_ms: int = 168 * 3600 * 1000
    retention_bytes: int = -1
    segment_bytes: int = limits.SEGMENT_BYTES
    timestamp_type: str = "append"
    max_message_bytes: int = limits.VALUE_MAX
    min_insync: int = 1
    schema: bool = False
    visibility_ms: int = limits.VISIBILITY_MS
    max_retries: int = limits.MAX_RETRIES
    dlq_enabled: bool = True
    backoff_base_ms: int = limits.BACKOFF_BASE_MS
    backoff_max_ms: int = limits.BACKOFF_MAX_MS


class PartitionMeta(Body):
    leader: str                  # node id, "" while there is none
    epoch: int
    replicas: list[str] = []
    isr: list[str] = []


class TopicMeta(Body):
    name: str
    id: int                      # 63 random bits, never 0, never reused
    config: TopicConfig
    partitions: list[PartitionMeta]
    replication_factor: int = 1
    created_us: int = 0
    version: int = 0             # metadata version of its last change


class DaemonMeta(Body):
    node_id: str
    daemon: str                  # "logd", "groupd", ...
    endpoints: list[str]         # ZeroMQ endpoints, ipc first
    incarnation: int             # grows with every registration
    curve: str = ""              # public CURVE key (z85) of its tcp endpoint; "": that one is plain, or there is none


class Scope(Body):
    """What a key may do: a verb of gq_proto.access on topics and groups whose names match the patterns ("*": any characters)."""

    verb: str
    topics: str = "*"
    groups: str = ""


class KeyMeta(Body):
    """A key as metad keeps it: never its secret. salt and hash are those of an API key, and left out of what is listed."""

    id: str
    name: str
    scopes: list[Scope]
    created_us: int
    expires_us: int = 0          # 0: never
    curve: str = ""              # public CURVE key (z85) of who is known by it instead of a secret
    node: bool = False           # a node of this cluster: its daemons may do anything
    salt: bytes = b""
    hash: bytes = b""


class Metadata(Body):
    """Everything that changed after `known_version` (0: all). Waits max_wait_ms for a change when there is none.
    `applied_by`: a logd says with its node id that it has applied known_version. `keys` and `follower` are for daemons alone."""

    known_version: int = 0
    max_wait_ms: int = 0
    topics: list[str] | None = None   # only these names; None: all
    applied_by: str = ""
    keys: bool = False           # the keys, too, with what they are checked by
    follower: str = ""           # "logd/n1": which registered daemon asks, and has known_version in force


class MetadataReply(Body):
    version: int
    topics: list[TopicMeta]
    deleted: list[int]           # topic ids deleted after known_version: the only reason to remove a folder
    daemons: list[DaemonMeta]    # all of them
    cluster_id: str = ""
    full: bool = False           # every topic (asked for) is here: others the asker knows are gone, but keep their folders
    keys: list[KeyMeta] | None = None   # all of them, when asked for and any changed after known_version


class CreateTopic(Body):
    """Answers once the leaders have it. config: only what differs from the defaults, camelCase keys. partitions 0: default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    config: dict[str, Any] = {}
    if_not_exists: bool = False
    internal: bool = False
    auto: bool = False           # a publish makes it on the way: refused where autoCreateTopics is off


class TopicReply(Body):
    topic: TopicMeta
    version: int
    created: bool = False


class AlterTopic(Body):
    """partitions 0: as it is; never fewer. config: what changes."""

    name: str
    partitions: int = 0
    config: dict[str, Any] = {}
    internal: bool = False


class DeleteTopic(Body):
    name: str
    internal: bool = False


class DeleteTopicReply(Body):
    topic_id: int
    version: int


class InitProducer(Body):
    """A new producer id (-1), or the next epoch of a known one, which fences its older incarnation."""

    producer_id: int = -1
    epoch: int = -1


class InitProducerReply(Body):
    producer_id: int
    epoch: int


class Register(Body):
    """A daemon is up at these endpoints. A logd's registration gives every partition it leads a new epoch."""

    node_id: str
    daemon: str
    endpoints: list[str]
    curve: str = ""              # as in DaemonMeta


class RegisterReply(Body):
    incarnation: int
    version: int                 # metadata version that contains the registration
    cluster_id: str


class CreateKey(Body):
    """An API key, whose secret the reply shows once; with `curve`, who has that CURVE key needs no secret; with `node`, that is a
    node of this cluster. Answers when the daemons know it. AlreadyExists: a name is used once among the keys there are."""

    name: str
    scopes: list[Scope]
    expires_us: int = 0
    curve: str = ""
    node: bool = False


class CreateKeyReply(Body):
    key: KeyMeta
    token: str = ""              # what a caller gives with each request: "gq_{id}_{secret}"; "" for a CURVE key
    unconfirmed: list[str] = []  # daemons ("logd/n1") that have not said in time that they know of it


class ListKeys(Body):
    """All keys."""


class ListKeysReply(Body):
    keys: list[KeyMeta]


class RevokeKey(Body):
    key: str                     # its id or name


class RevokeKeyReply(Body):
    """A daemon that is in `unconfirmed` and still runs may take the key until it hears of it."""

    key: KeyMeta
    unconfirmed: list[str] = []


class CheckKey(Body):
    """Whose token is this? For daemons that check callers of their own, as the gateway does. Unauthorized: nobody's."""

    token: bytes


class CheckKeyReply(Body):
    key: KeyMeta
