import re
from importlib import import_module
from pathlib import Path

import pytest

from gq_ctl import app, spark
from gq_ctl.verify import Place
from gq_proto.errors import BadRequest, Corrupt, Internal, Unavailable
from gq_spark import jobs, sink
from gq_spark.jobs import dlq, job, replay

FOLDER = Path(jobs.__file__).parent
TRACE = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/somewhere/reading.py", line 1, in read
gq_proto.errors.Corrupt: /data/logs/t/0/00000000000000000000.log: position 7: the CRC does not match
 SQLSTATE: 38000
"""


def test_the_jobs_are_those_that_gqctl_lists():
    assert {path.stem for path in FOLDER.glob("[a-z]*.py")} - {"job"} == set(spark.JOBS)


@pytest.mark.parametrize("name", spark.JOBS)
def test_a_jobs_help_begins_with_its_line_in_gqctls(name, capsys):
    module = import_module(f"gq_spark.jobs.{name}")
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert spark.JOBS[name] in text and f"usage: gqctl spark {name} " in text


def test_a_mistake_is_one_line_and_exit_code_2(capsys):
    with pytest.raises(SystemExit) as ended:
        job.Parser("traffic: x.", "*").times().parse_args(["--from", "yesterday"])
    assert ended.value.code == app.USAGE
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "'yesterday' is not a time" in err and "gqctl spark traffic --help" in err


def test_times_are_told_to_the_source_exactly():
    args = job.Parser("x: y.", "*").times().parse_args(["--from", "1700000000.25", "--to", "1970-01-01T00:00:01.000001+00:00"])
    assert (args.low, args.high) == ("1700000000.250000", "1.000001")


def test_the_topic_is_asked_for_where_there_is_no_default(capsys):
    with pytest.raises(SystemExit):
        job.Parser("x: y.", job.REQUIRED).parse_args([])
    assert "--topic" in capsys.readouterr().err
    assert job.Parser("x: y.", "*").parse_args([]).topic == "*"


def test_an_error_of_ours_is_found_in_sparks_trace():
    error = job.of_spark(RuntimeError(TRACE))
    assert type(error) is Corrupt and error.message.endswith("position 7: the CRC does not match")
    other = job.of_spark(RuntimeError("[PARSE_SYNTAX_ERROR] Syntax error at 'x'.\n== SQL ==\nx"))
    assert type(other) is Internal and other.message == "[PARSE_SYNTAX_ERROR] Syntax error at 'x'."
    assert "Java 17" in job.of_spark(RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.")).message


def test_a_replay_to_nobody_is_told_before_spark_starts(monkeypatch):
    def client(target):
        raise Unavailable(f"cannot reach {target.server}")
    monkeypatch.setattr(sink.Target, "client", client)
    monkeypatch.setattr(job, "session", lambda: pytest.fail("it started"))
    with pytest.raises(Unavailable, match="h:7400"):
        replay.main(["--server", "h:7400", "--topic", "a", "--to-topic", "b"])


def test_of_which_topics_the_dead_letters_are_meant():
    def meant(name, topics):
        return dlq._meant(Place(name, 0, []), topics)
    assert meant("a.dlq", "*") and meant("a.dlq", "a") and meant("a.dlq", "b, a") and meant("a.dlq", "[ab]")
    assert not meant("a", "*") and not meant("a.dlq", "b")


def test_where_copies_go():
    assert replay.target(None, "/d") == {"dataDir": "/d"} and replay.target("h:1", "/d,/e") == {"server": "h:1"}
    with pytest.raises(BadRequest, match="--server"):
        replay.target(None, "/d,/e")


def test_every_jobs_module_says_what_it_is():
    for name, text in spark.JOBS.items():
        first = re.match(r'"""(.*)', (FOLDER / f"{name}.py").read_text())
        assert first and first[1].lower() == f"{name}: {text}".lower()
