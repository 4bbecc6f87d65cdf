# One node per file: `setup_file` of each .bats calls start_node, `teardown_file` stop_node. Tests use topics of their own names.
# Waits for conditions, never for time: see `eventually`.

bats_require_minimum_version 1.5.0

export GQ_ROOT="${GQ_ROOT:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}"
export GQ_PYTHON="${GQ_PYTHON:-$(command -v python3)}"

# A real program, so that it can be started by other programs, killed, and waited for.
GQ_BIN="$BATS_RUN_TMPDIR/bin"
if [ ! -x "$GQ_BIN/gqctl" ]; then
    mkdir -p "$GQ_BIN"
    printf '#!/bin/sh\nPYTHONPATH="%s${PYTHONPATH:+:$PYTHONPATH}" exec "%s" -m gq_ctl "$@"\n' "$GQ_ROOT" "$GQ_PYTHON" > "$GQ_BIN/gqctl"
    chmod +x "$GQ_BIN/gqctl"
fi
PATH="$GQ_BIN:$PATH"

# start_node [NAME]: a node on an empty data directory whose path has a space in it.
start_node() {
    unset GOQUEUE_SERVER GOQUEUE_CONFIG
    export GQ_DIR
    GQ_DIR="$(mktemp -d)"
    export GOQUEUE_RUNTIME_DIR="$GQ_DIR/run"
    export GOQUEUE_DATA_DIR="$GQ_DIR/${1:-a node}"
    gqctl --data-dir "$GOQUEUE_DATA_DIR" up > /dev/null
}

# Ends all nodes below GQ_DIR, those of tests that failed half-way too.
stop_node() {
    local file pid
    gqctl down || true
    for file in "$GOQUEUE_RUNTIME_DIR"/*/supervisord.pid; do
        [ -f "$file" ] && kill "$(cat "$file")" 2> /dev/null
    done
    while read -r file; do
        pid="$(cat "$file")"
        [ -n "$pid" ] && grep -qs gq_ "/proc/$pid/cmdline" && eventually 20 ended "$pid"
    done < <(find "$GQ_DIR" -name '.*d.lock')
    rm -rf "$GQ_DIR"
}

# pid_of DAEMON
pid_of() {
    gqctl status -o json | "$GQ_PYTHON" -c '
import json, sys
print(next(row["pid"] for row in map(json.loads, sys.stdin) if row["daemon"] == sys.argv[1]))' "$1"
}

# field NAME...: these fields of JSON lines on stdin, with spaces between.
field() {
    "$GQ_PYTHON" -c '
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    print(*(json.dumps(v) if isinstance(v := row.get(name), (dict, list)) else v for name in sys.argv[1:]))' "$@"
}

# eventually SECONDS COMMAND...: until the command succeeds; its last output is shown when it never does.
eventually() {
    local end=$((SECONDS + $1)) out
    shift
    until out="$("$@" 2>&1)"; do
        if ((SECONDS >= end)); then
            echo "never came true: $*"
            echo "$out"
            return 1
        fi
        sleep 0.1
    done
}

# exit_of CODE PID: the background job ends with this exit code.
exit_of() {
    local code=0
    wait "$2" || code=$?
    [ "$code" = "$1" ]
}

# ended PID...: none of them runs.
ended() {
    local pid
    for pid in "$@"; do
        if kill -0 "$pid" 2> /dev/null && ! grep -qs '^State:.Z' "/proc/$pid/status"; then
            echo "still there: $pid"
            return 1
        fi
    done
}

# total: the sum of the numbers on stdin.
total() {
    awk '{ sum += $1 } END { print sum + 0 }'
}

# lag_of GROUP FIELD: the sum of a field of `group lag`; fails when there is no such group.
lag_of() {
    local rows
    rows="$(gqctl group lag "$1" -o json)" && field "$2" <<< "$rows" | total
}

# in_flight GROUP N: the group has N messages out.
in_flight() {
    [ "$(lag_of "$1" in_flight)" = "$2" ]
}

# lag_is GROUP N
lag_is() {
    [ "$(lag_of "$1" lag)" = "$2" ]
}
