"""GoQueue for a side-by-side harness of message queues: a subclass of its `common.Peer`. bench/README.md says how to run it.

Daemons as shipped: fsync every second, CRC checks and metrics on, tcp off (a Unix socket, as every client on the host has it).
"""

import os
import sys
import time
from pathlib import Path

from common import KEYS, Budget, Latencies, Meter, Pace, Peer, age_ms, payloads, stamped

DAEMONS = ("metad", "logd", "groupd", "delayd")
PARTITIONS = 3
ROOT = Path(__file__).resolve().parents[1]


class GoQueue(Peer):
    name = "goqueue"
    settings = ("fsync every 1 s, acks=leader, idempotent producer, 3 partitions; publish: the batching producer, all futures "
                "confirmed by flush(); replay: a reader per partition; work: one consumer, ack() on each message")
    def unavailable(self):
        try:
            import gq_client  # noqa: F401
        except ImportError as e:
            return f"gq_client is not importable here: {e}"

    def version(self):
        from gq_proto import __version__, codec
        return f"goqueue {__version__}, {codec.NAME} codec, Python {sys.version.split()[0]}"

    def start(self, data_dir):
        self.data = os.path.join(data_dir, "data")
        os.makedirs(self.data)
        env = {"GOQUEUE_DATA_DIR": self.data, "PYTHONPATH": str(ROOT)}
        env |= {f"GOQUEUE_{name.upper()}{kind}_ADDR": "off" for name in DAEMONS for kind in ("", "_METRICS")}
        for name in DAEMONS:
            self.spawn([sys.executable, "-m", f"gq_{name}"], data_dir, env=env)
        for name in DAEMONS:
            self._wait_ready(name)

    def _wait_ready(self, name, timeout=60):
        from gq_ctl.line import daemon_status
        from gq_run.paths import ipc_endpoint
        end = time.monotonic() + timeout
        while not ((status := daemon_status(ipc_endpoint(self.data, name), 1.0)) and status.ready):
            if time.monotonic() > end:
                raise TimeoutError(f"{name} was not ready in {timeout} s")
            time.sleep(0.05)

    def client(self):
        import gq_client
        return gq_client.Client(data_dir=self.data)

    def create(self, topic, workload):
        with self.client() as client:
            client.create_topic(topic, partitions=PARTITIONS)

    def delete(self, topic):
        with self.client() as client:
            client.delete_topic(topic)

    def stored(self, client, topic):
        """Each partition of a new topic begins with one record of the log's own, its leader's."""
        return sum(max(p.high_watermark - p.log_start - 1, 0) for p in client.partitions(topic))

    def publish_throughput(self, topic, size, seconds=None, count=None):
        bodies, keys = payloads(size), [key.encode() for key in KEYS]
        with self.client() as client, client.producer() as producer:
            meter, budget, sent = Meter(self), Budget(seconds, count), 0
            while budget.left(sent):
                for i in range(sent, min(sent + 1000, budget.count)):
                    producer.send(topic, bodies[i & 63], key=keys[i % 1000])
                sent = min(sent + 1000, budget.count)
            producer.flush()
            result = meter.done(sent)
            stored = self.stored(client, topic)
        assert stored == sent, f"{stored} stored of {sent}"
        return result

    def publish_latency(self, topic, size, count, rate=None):
        bodies = payloads(size)
        with self.client() as client:
            lat = Latencies(self, rate)
            for i in range(count):
                lat.begin(i)
                client.publish(topic, bodies[i & 63], key=KEYS[i % 1000])
                lat.end()
            return lat.done()

    def replay(self, topic, count):
        n = touched = 0
        with self.client() as client:
            meter = Meter(self)
            for partition in range(PARTITIONS):
                with client.reader(topic, partition, from_="earliest", stop_at_end=True) as reader:
                    for message in reader:
                        touched += len(message.key) + message.value[0]
                        n += 1
            return meter.done(n)

    def work_queue(self, topic, count):
        n = 0
        with self.client() as client:
            meter = Meter(self)
            with client.consumer([topic], "workers", ack="manual") as consumer:
                for message in consumer:
                    message.ack()
                    n += 1
                    if n == count:
                        break
                consumer.flush()
                result = meter.done(n)
            lag = sum(p.lag for p in client.describe_group("workers").partitions)
        assert lag == 0, f"{lag} not acked"
        return result

    def e2e_produce(self, topic, size, count, rate):
        bodies = payloads(size)
        with self.client() as client, client.producer(linger=0) as producer:
            pace = Pace(rate)
            for i in range(count):
                pace.wait(i)
                producer.send(topic, stamped(bodies[i & 63], time.monotonic_ns()), key=KEYS[i % 1000])
            producer.flush()
            return pace.achieved(count)

    def delayed_produce(self, topic, size, delays, rate):
        body = payloads(size, 1)[0]
        with self.client() as client, client.producer(linger=0) as producer:
            pace = Pace(rate)
            for i, delay in enumerate(delays):
                pace.wait(i)
                producer.send(topic, stamped(body, time.monotonic_ns() + int(delay * 1e9)), deliver_at=time.time() + delay)
            producer.flush()
            return pace.achieved(len(delays))

    def e2e_consume(self, topic, count, ready):
        ages = []
        with self.client() as client, client.consumer([topic], "workers", ack="manual") as consumer:
            ready.set()
            for message in consumer:
                ages.append(age_ms(message.value))
                message.ack()
                if len(ages) == count:
                    break
        return ages
