#!/usr/bin/env bats
# gqctl spark: what it says without Spark. The jobs themselves: tests/system/test_spark_jobs.py.

load helper

# without MODULE ARGUMENT...: gqctl where that module is not installed.
without() {
    mkdir -p "$BATS_TEST_TMPDIR/site"
    echo "import sys; sys.modules['$1'] = None" > "$BATS_TEST_TMPDIR/site/sitecustomize.py"
    PYTHONPATH="$BATS_TEST_TMPDIR/site" gqctl "${@:2}"
}

# one_line: what was printed, as one line.
one_line() { tr -s ' \n' ' ' <<< "$output"; }

@test "help lists the jobs" {
    run -0 gqctl spark --help
    for job in export traffic dlq keys verify replay; do [[ "$output" == *"  $job "* ]]; done
    [[ "$output" == *"goqueue[spark]"* ]]
    run -2 --separate-stderr gqctl spark nope
    [[ "$stderr" == *"No such command 'nope'"* ]]
}

@test "a job's own help, from a checkout, on the node's directory" {
    run -0 env GOQUEUE_DATA_DIR=/somewhere gqctl spark export --help
    [[ "$(one_line)" == "usage: gqctl spark export"*"--topic TOPIC"*"the node's, /somewhere"* ]]
    run -0 gqctl --data-dir /else spark verify -h
    [[ "$(one_line)" == *"the node's, /else"* ]]
}

@test "a mistake in a job's command line: one line, exit 2" {
    run -2 --separate-stderr gqctl --server host:7400 spark verify
    [ "${#stderr_lines[@]}" = 1 ]
    [[ "$stderr" == *"give --data-dir"* ]]
}

@test "without the extra or without Java: one line that says how to get it, exit 1" {
    run -1 --separate-stderr without pyspark spark verify
    [[ "$stderr" == "gqctl: PySpark is not installed: /"*" -m pip install 'goqueue[spark]'" ]]
    run -0 without pyspark spark verify --help
    "$GQ_PYTHON" -c 'import pyspark' 2> /dev/null || skip "no PySpark here"
    run -1 --separate-stderr env JAVA_HOME=/nowhere gqctl spark verify
    [[ "$stderr" == "gqctl: JAVA_HOME is /nowhere, where there is no bin/java"* ]]
    # A PATH with no java on it.
    mkdir "$BATS_TEST_TMPDIR/bin"
    ln -s "$(command -v sh)" "$BATS_TEST_TMPDIR/bin/sh"
    run -1 --separate-stderr env -u JAVA_HOME PATH="$BATS_TEST_TMPDIR/bin" "$GQ_BIN/gqctl" spark verify
    [ "${#stderr_lines[@]}" = 1 ]
    [[ "$stderr" == "gqctl: Spark needs Java 17: apt-get install openjdk-17-jre-headless"* ]]
}
