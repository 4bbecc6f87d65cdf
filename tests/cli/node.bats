#!/usr/bin/env bats
# up, down, restart, status: the daemons of a node as a shell user sees them.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

@test "status shows every daemon ready, with pid, codec and version" {
    run -0 --separate-stderr gqctl status -o json
    [ "$(field daemon health <<< "$output")" = $'metad ready\nlogd ready\ngroupd ready\ndelayd ready\ngateway ready' ]
    [ "$(field version <<< "$output" | sort -u)" = "$(gqctl --version | awk '{ print $2 }')" ]
    field codec <<< "$output" | grep -qxE 'compiled|pure'
    for pid in $(field pid <<< "$output"); do kill -0 "$pid"; done
    [ -z "$stderr" ]
}

@test "up again changes nothing" {
    before="$(gqctl status -o json | field daemon pid)"
    run -0 gqctl up -o json
    [ "$(gqctl status -o json | field daemon pid)" = "$before" ]
}

@test "a daemon killed with -9 is back with another pid" {
    before="$(pid_of logd)"
    kill -9 "$before"
    back() { [ "$(pid_of logd)" != "$before" ] && gqctl status > /dev/null; }
    eventually 20 back
}

@test "restart of one daemon leaves the others alone" {
    metad="$(pid_of metad)" logd="$(pid_of logd)"
    gqctl restart logd > /dev/null
    [ "$(pid_of metad)" = "$metad" ]
    [ "$(pid_of logd)" != "$logd" ]
    gqctl status > /dev/null
}

@test "down ends everything and waits, up brings it back with its data" {
    gqctl topic create kept --partitions 1 > /dev/null
    gqctl publish kept hello > /dev/null
    pids="$(gqctl status -o json | field pid)"
    run -0 gqctl down
    ended $pids
    run -3 --separate-stderr gqctl topic list
    [[ "$stderr" == *"no node runs on $GOQUEUE_DATA_DIR: start it with"*up* ]]
    [ "$(wc -l <<< "$stderr")" = 1 ]
    run -3 gqctl status
    run -0 gqctl down
    gqctl up > /dev/null
    [ "$(gqctl consume kept -o value)" = hello ]
}

@test "daemons that outlived their supervisor are taken over by up and ended by down" {
    supervisor="$(cat "$GOQUEUE_RUNTIME_DIR"/*/supervisord.pid)"
    kill -9 "$supervisor"
    gone() { ! kill -0 "$supervisor" 2> /dev/null; }
    eventually 5 gone
    pids="$(gqctl status -o json | field pid)"
    gqctl down
    ended $pids
    gqctl up > /dev/null
    gqctl status > /dev/null
}

@test "a second node on the same directory is refused with one clear line" {
    run --separate-stderr env PYTHONPATH="$GQ_ROOT:$PYTHONPATH" timeout 20 "$GQ_PYTHON" -m gq_logd
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
    grep -q -i "lock\|another" <<< "$stderr$output"
}

@test "a data directory with spaces, longer than a socket's path may be, works" {
    long="$GQ_DIR/with spaces & 50% $(printf 'd%.0s' {1..110})/$(printf 'e%.0s' {1..120})"
    gqctl --data-dir "$long" up > /dev/null
    gqctl --data-dir "$long" publish t x > /dev/null
    run -0 gqctl --data-dir "$long" consume t -o value
    [ "$output" = x ]
    run -4 gqctl topic describe t
    gqctl --data-dir "$long" down
}

@test "LANG=C and no locale at all change no bytes" {
    for locale in C POSIX; do
        LC_ALL=$locale LANG=$locale gqctl publish utf8 'grün ☃' > /dev/null
    done
    run -0 env LC_ALL=C gqctl consume utf8 -o value
    [ "$output" = $'grün ☃\ngrün ☃' ]
}

@test "usage errors are one line, exit 2, and say where help is" {
    run -2 --separate-stderr gqctl consume
    [ "$(wc -l <<< "$stderr")" = 1 ]
    [[ "$stderr" == gqctl:*"gqctl consume --help"* ]]
    [ -z "$output" ]
    run -2 gqctl no-such-command
    run -2 gqctl consume t --timeout never
    run -2 gqctl up --server 127.0.0.1:7400
    run -2 gqctl --data-dir /x --server y:1 topic list
}

@test "help works without a node, for every command" {
    run -0 env GOQUEUE_DATA_DIR=/nonexistent gqctl --help
    for command in up status "topic create" publish consume ack replay "group reset" "dlq redrive" "log verify" "bench publish"; do
        # shellcheck disable=SC2086
        run -0 gqctl $command --help
    done
}

@test "a wrong configuration is said by up, not waited for" {
    mkdir -p "$GQ_DIR/bad"
    echo 'storage: {fsync: {mode: sometimes}}' > "$GQ_DIR/bad/goqueue.yaml"
    SECONDS=0
    run -1 --separate-stderr gqctl --data-dir "$GQ_DIR/bad" up
    [[ "$stderr" == *storage.fsync.mode* ]]
    ((SECONDS < 15))
    gqctl --data-dir "$GQ_DIR/bad" down
}
