"""Several daemons' metrics as one exposition: each family once, samples together, whatever daemons declare."""

from prometheus_client.parser import text_string_to_metric_families

from gq_gateway.scrape import merge
from gq_run.exporter import render
from gq_run.metrics import LOG_APPEND_LATENCY, REQUESTS, TOPICS, UPTIME, Histogram


def daemon(name: str, requests: int) -> bytes:
    latency = Histogram()
    latency.observe(0.001, requests)
    return render({UPTIME: [((name,), 1.5)], REQUESTS: [((name,), requests)], LOG_APPEND_LATENCY: [(("t", name), latency)]})


def test_families_are_put_together() -> None:
    merged = merge([daemon("metad", 1) + render({TOPICS: [((), 4)]}), b"", daemon("logd", 2)]).decode()
    families = {family.name: family for family in text_string_to_metric_families(merged)}
    assert {sample.labels["daemon"]: sample.value for sample in families["goqueue_requests"].samples} == {"metad": 1, "logd": 2}
    assert {sample.labels["daemon"] for sample in families["goqueue_uptime_seconds"].samples} == {"metad", "logd"}
    assert {sample.labels["partition"] for sample in families["goqueue_log_append_latency_seconds"].samples} == {"metad", "logd"}
    assert families["goqueue_topics"].samples[0].value == 4
    heads = [line for line in merged.splitlines() if line.startswith("# ")]
    assert len(heads) == len(set(heads)) == 2 * len(families)


def test_samples_of_a_family_stand_in_one_place() -> None:
    lines = merge([daemon("a", 1), daemon("b", 2), daemon("c", 3)]).decode().splitlines()
    families = [line.split("{")[0].removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for line in lines
                if not line.startswith("#")]
    changes = [name for at, name in enumerate(families) if at == 0 or families[at - 1] != name]
    assert len(changes) == len(set(changes))


def test_nothing_is_nothing() -> None:
    assert merge([]) == b"" and merge([b"", b""]) == b""
