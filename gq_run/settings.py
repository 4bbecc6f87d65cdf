"""The options that more than one daemon knows. What only one daemon needs is in its own options.py, in the section of its name.

Owns names, defaults, ranges and help of SPEC's config sections that are built; nothing reads the others yet, so they are unknown
keys. What a client decides for itself is none of a daemon's options: ELSEWHERE says where it is set. The order is that of
etc/goqueue.yaml.
"""

from typing import Final

from gq_proto import limits
from gq_run import paths
from gq_run.options import BOOL, BYTES, DURATION, INT, TEXT, UNLIMITED, Option

YEAR_MS: Final = 365 * 86_400_000

BROKER: Final = (
    Option("broker.nodeId", "", TEXT, "name of this node; empty: the one its data directory got at its first start",
           name="node-id"),
    Option("broker.dataDir", "", TEXT, "where everything is kept; empty: /var/lib/goqueue for root, else ~/.local/share/goqueue",
           name="data-dir"),
    Option("broker.metad", "", TEXT, "ZeroMQ endpoint of metad; empty: the one of this data directory", name="metad"),
    Option("broker.advertise", "", TEXT, "host by which others reach this node's public listeners; empty: its host name",
           name="advertise"),
    *(Option(f"broker.listeners.{daemon}", f"{paths.LOOPBACK}:{port}", TEXT,
             f"host:port for clients of {daemon} without a path to its socket; off: none", name=f"{daemon}-addr")
      for daemon, port in paths.TCP_PORTS.items()),
)

STORAGE: Final = (
    Option("storage.segmentSize", limits.SEGMENT_BYTES, BYTES, "a log goes on in a new file at this size",
           limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX),
    Option("storage.indexIntervalBytes", limits.INDEX_INTERVAL_BYTES, BYTES, "one offset index entry per so many bytes",
           512, limits.MIB),
    Option("storage.timeIndexIntervalMs", limits.TIME_INDEX_INTERVAL_MS, INT, "one time index entry per so many milliseconds",
           10, 3_600_000),
    Option("storage.fsync.mode", "interval", TEXT, "when appended data is forced to the disk",
           choices=("none", "interval", "every")),
    Option("storage.fsync.intervalMs", 1000, INT, "milliseconds between two rounds of mode interval", 10, 60_000),
    Option("storage.reserveBytes", limits.RESERVE_BYTES, BYTES, "free disk space that publishes leave to acks", 0),
)

DEFAULTS_TOPIC: Final = (
    Option("defaults.topic.partitions", 3, INT, "partitions of a new topic", 1, limits.PARTITIONS_MAX),
    Option("defaults.topic.replicationFactor", 1, INT, "copies of a new topic's partitions", 1, 1),
    Option("defaults.topic.retention.hours", 168, INT, "messages are kept this long", UNLIMITED, 1_000_000),
    Option("defaults.topic.retention.bytes", -1, BYTES, "and up to so many bytes a partition", UNLIMITED),
    Option("defaults.topic.minInsync", 1, INT, "copies that acks=all waits for", 1, 1),
    Option("defaults.topic.timestampType", "append", TEXT, "whose clock stamps a message: the log's, or its producer's",
           choices=("append", "create")),
    Option("defaults.topic.maxMessageBytes", limits.VALUE_MAX, BYTES, "the largest value", 1, limits.VALUE_CEILING),
    Option("defaults.topic.autoCreateTopics", True, BOOL, "a publish to an unknown topic creates it"),
)

DEFAULTS_DELIVERY: Final = (
    Option("defaults.delivery.visibilityTimeout", limits.VISIBILITY_MS, DURATION, "a message not acked by then comes back",
           1, limits.VISIBILITY_MS_MAX),
    Option("defaults.delivery.maxRetries", limits.MAX_RETRIES, INT, "failed deliveries after which a message goes to the DLQ",
           1, 1_000_000),
    Option("defaults.delivery.dlqEnabled", True, BOOL, "false: failed messages are retried for ever"),
    Option("defaults.delivery.backoff.base", limits.BACKOFF_BASE_MS, DURATION, "wait before the first retry; doubles each time",
           0, YEAR_MS),
    Option("defaults.delivery.backoff.max", limits.BACKOFF_MAX_MS, DURATION, "the longest such wait", 0, YEAR_MS),
)

CONSUMER: Final = (
    Option("consumer.sessionTimeout", limits.SESSION_MS, DURATION, "a consumer that is not heard for this long is out of its "
           "group, unless it asked for another time", 100, limits.VISIBILITY_MS_MAX),
    Option("consumer.heartbeatInterval", limits.HEARTBEAT_MS, DURATION, "how often consumers report what they hold", 100, 60_000),
    Option("consumer.maxInFlight", limits.MAX_IN_FLIGHT, INT, "messages a consumer may hold unsettled; more wait", 1, 1_000_000),
    Option("consumer.rebalanceProtocol", "cooperative", TEXT, "how partitions move: those that stay never pause",
           choices=("cooperative",)),
)

PRIORITY: Final = (
    Option("priority.weights", "/".join(map(str, limits.LANE_WEIGHTS)), TEXT,
           "how many messages of each priority a round of deliveries takes, critical to background"),
    Option("priority.starvationTimeout", limits.STARVATION_MS, DURATION,
           "messages of a priority that others were preferred to for this long go first", 100, YEAR_MS),
)

DELAY: Final = (
    Option("delay.indexInterval", 1_000, DURATION, "how often what is scheduled is saved, for a quick restart; 0: never",
           0, 3_600_000),
    Option("delay.readyMessages", 8_192, INT, "messages that one ready record names at most", 1, 65_536),
    Option("delay.noticeInterval", 10, DURATION, "a busy log is looked at so often (less if no message in it is delayed)",
           0, 1_000),
)

METRICS: Final = (
    Option("metrics.enabled", True, BOOL, "serve Prometheus metrics over HTTP"),
    Option("metrics.open", False, BOOL, "true: they want no API key, even where other machines reach them"),
    *(Option(f"metrics.listeners.{daemon}", f"{paths.LOOPBACK}:{port}", TEXT, f"host:port of /metrics of {daemon}; off: none",
             name=f"{daemon}-metrics-addr")
      for daemon, port in paths.METRICS_PORTS.items()),
    Option("metrics.listeners.node", f"{paths.LOOPBACK}:9090", TEXT,
           "host:port of the gateway's /metrics of all daemons of the node; off: none", name="metrics-addr"),
)

def _tls(section: str) -> tuple[Option, ...]:
    return (
        Option(f"{section}.tls.certFile", "", TEXT, "PEM file with the certificate and its chain; empty: no TLS",
               name=f"{section}-tls-cert"),
        Option(f"{section}.tls.keyFile", "", TEXT, "PEM file with its private key, without a passphrase",
               name=f"{section}-tls-key"),
        Option(f"{section}.tls.clientCaFile", "", TEXT, "PEM file of authorities: callers must show a certificate of one of them",
               name=f"{section}-tls-client-ca"),
    )


HTTP: Final = (
    Option("http.address", f"{paths.LOOPBACK}:8080", TEXT, "host:port of the gateway's REST API; off: none", name="http-addr"),
    Option("http.maxBodyBytes", 16 * limits.MIB, BYTES, "the largest body of a request", limits.KIB, limits.FRAME_MAX),
    Option("http.maxConnections", 10_000, INT, "connections at a time; more are turned away", 1, 1_000_000),
    Option("http.requestTimeout", 10_000, DURATION, "a request that has begun must be whole after this long", 100, 3_600_000),
    Option("http.idleTimeout", 75_000, DURATION, "a connection without a request is closed after this long", 1_000, 3_600_000),
    Option("http.answerTimeout", 10_000, DURATION, "a node that does not answer for so long makes the answer 503", 100, 600_000),
    Option("http.drain", 10_000, DURATION, "how long answers under way may take when the gateway stops", 100, 3_600_000),
    *_tls("http"),
)

GRPC: Final = (
    Option("grpc.address", f"{paths.LOOPBACK}:9000", TEXT, "host:port of the gateway's gRPC service; off: none", name="grpc-addr"),
    Option("grpc.maxMessageBytes", 16 * limits.MIB, BYTES, "the largest message of a caller", limits.KIB, limits.FRAME_MAX),
    Option("grpc.maxCalls", 10_000, INT, "calls at a time, streams included; more are refused", 1, 1_000_000),
    *_tls("grpc"),
)

SECURITY: Final = (
    Option("security.require", "public", TEXT, "which tcp listeners want API keys (and speak CURVE): those open to other machines, "
           "or all", choices=("public", "tcp")),
    Option("security.insecure", False, BOOL, "true: no listener wants keys, public ones neither; for closed networks only"),
    Option("security.metadKey", "", TEXT, "public CURVE key of metad's node, where broker.metad is a tcp endpoint that wants keys"),
)

LOGGING: Final = (
    Option("logging.level", "info", TEXT, "what is logged, at least", choices=("debug", "info", "warning", "error"),
           name="log-level"),
    Option("logging.format", "json", TEXT, "how a line looks", choices=("json", "text"), name="log-format"),
)

ELSEWHERE: Final = {
    "consumer.maxPollRecords": "each consumer says it: client.consumer(..., max_poll=500)",
    "consumer.pollTimeout": "each poll says it: consumer.poll(timeout=30)",
    "consumer.autoCommitInterval": "there is none: consumers send their acks within 10 ms",
    "producer": "each producer says it: client.producer(batch_messages=..., batch_bytes=..., linger=..., acks=...)",
}

SHARED: Final = (*BROKER, *STORAGE, *DEFAULTS_TOPIC, *DEFAULTS_DELIVERY, *CONSUMER,
                 *PRIORITY, *DELAY, *METRICS, *HTTP, *GRPC, *SECURITY, *LOGGING)
