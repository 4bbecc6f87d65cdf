#!/usr/bin/env bats
# gqctl consume: simple reads and groups.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

# filled TOPIC N: one partition, messages 1..N.
filled() {
    gqctl topic create "$1" --partitions "${3:-1}" > /dev/null
    seq "$2" | gqctl publish "$1" -l > /dev/null
}

@test "a simple read prints everything up to the end, again and again" {
    filled simple 5
    for _ in 1 2; do
        [ "$(gqctl consume simple -o value)" = $'1\n2\n3\n4\n5' ]
    done
    [ "$(gqctl consume simple --max 2 -o value)" = $'1\n2' ]
    [ "$(gqctl group list -o value)" = "" ]
}

@test "json in a pipe has topic, partition, offset, timestamp, key, value, priority" {
    gqctl publish shaped v --key k -H a=b > /dev/null
    run -0 gqctl consume shaped
    [ "$(field topic key value priority headers <<< "$output")" = 'shaped k v 2 {"a": "b"}' ]
    [[ "$(field timestamp <<< "$output")" =~ ^[0-9]{16}$ ]]
    run -0 gqctl consume shaped -o table
    [[ "${lines[0]}" == PART*OFFSET*VALUE ]]
}

@test "from an offset, from the latest, from a time" {
    filled from 3
    offset="$(gqctl consume from -o json | field offset | sed -n 2p)"
    [ "$(gqctl consume from --from "$offset" -o value)" = $'2\n3' ]
    [ -z "$(gqctl consume from --from latest -o value)" ]
    [ "$(gqctl consume from --from -1h -o value | wc -l)" = 3 ]
    [ -z "$(gqctl consume from --from +1h -o value)" ]
    when="$(gqctl consume from -o json | field timestamp | tail -1)"
    at="$(printf '@%d.%06d' $((when / 1000000)) $((when % 1000000)))"
    [ "$(gqctl consume from --from "$at" -o value | tail -1)" = 3 ]
}

@test "follow waits for more; max ends it" {
    filled follow 1
    gqctl consume follow --follow --max 3 -o value > "$BATS_TEST_TMPDIR/out" 3>&- &
    pid=$!
    first() { [ "$(cat "$BATS_TEST_TMPDIR/out")" = 1 ]; }
    eventually 10 first
    seq 2 3 | gqctl publish follow -l > /dev/null
    wait "$pid"
    [ "$(cat "$BATS_TEST_TMPDIR/out")" = $'1\n2\n3' ]
}

@test "max not reached before the timeout is exit 124, with what there was" {
    filled late 3
    run -124 --separate-stderr gqctl consume late --max 5 --timeout 2s -o value
    [ "$output" = $'1\n2\n3' ]
    [[ "$stderr" == *"3 of 5"* ]]
    run -124 --separate-stderr gqctl consume late --group g5 --max 5 --timeout 5s -o value
    [ "$output" = $'1\n2\n3' ]
    run -0 --separate-stderr gqctl consume late --group g2x --timeout 5s -o value
    [ "$output" = $'1\n2\n3' ]
}

@test "a group: each message once, acked; the next consumer gets the rest" {
    filled shared 10
    [ "$(gqctl consume shared --group g6 --max 4 --timeout 20s -o value)" = $'1\n2\n3\n4' ]
    lag_is g6 6
    [ "$(gqctl consume shared --group g6 --max 6 --timeout 20s -o value)" = $'5\n6\n7\n8\n9\n10' ]
    lag_is g6 0
    run -124 gqctl consume shared --group g6 --max 1 --timeout 500ms
    [ "$(gqctl consume shared --group other --max 10 --timeout 20s -o value | wc -l)" = 10 ]
}

@test "a new group begins where --from says" {
    filled begins 3
    run -124 gqctl consume begins --group late --from latest --max 1 --timeout 5s
    gqctl publish begins 4 > /dev/null
    [ "$(gqctl consume begins --group late --max 1 --timeout 20s -o value)" = 4 ]
    run -2 gqctl consume begins --group x --from 17
}

@test "ack none gives everything back, uncounted" {
    filled looked 3
    [ "$(gqctl consume looked --group g8 --ack none --max 3 --timeout 20s -o value | wc -l)" = 3 ]
    [ "$(gqctl consume looked --group g8 --ack manual --max 3 --timeout 20s | field delivery | sort -u)" = 1 ]
}

@test "a closed stdout loses nothing: what was not printed comes again" {
    filled piped 20000
    run bash -c 'set -o pipefail; gqctl consume piped --group g9 -o value | head -1'
    [ "${lines[0]}" = 1 ]
    [ "$status" = 141 ]
    [ "${#lines[@]}" = 1 ]
    in_flight g9 0
    lag="$(gqctl group lag g9 -o value)"
    ((lag > 0))
    [ "$(gqctl consume piped --group g9 --max "$lag" --timeout 20s -o value | tail -1)" = 20000 ]
    run bash -c 'set -o pipefail; gqctl consume piped -o value | head -1'
    [ "$status" = 141 ]
    [ "$output" = 1 ]
}

@test "a stdout that was closed from the start loses nothing either" {
    # As long as what an eventfd takes: without a stand-in it would go to one of ZeroMQ's.
    printf '1234567\n' | gqctl publish shut -l
    run -1 bash -c 'gqctl consume shut --group g9s --max 1 --timeout 20s -o value >&-'
    [ "$output" = "gqctl: stdout: Bad file descriptor" ]
    [ "$(gqctl consume shut --group g9s --max 1 --timeout 20s -o value)" = 1234567 ]
    run -1 bash -c 'gqctl publish shut - <&-'
    [ "$output" = "gqctl: stdin: Bad file descriptor" ]
}

@test "Ctrl-C in the middle of consume gives the leases back at once" {
    filled broken 1000
    # A background job of a script ignores SIGINT, and so does what it starts.
    env --default-signal=INT gqctl consume broken --group g10 --exec 'sleep 60' 3>&- &
    pid=$!
    eventually 10 in_flight_some g10
    SECONDS=0
    kill -INT "$pid"
    exit_of 130 "$pid"
    in_flight g10 0
    ((SECONDS < 8))
    [ "$(gqctl consume broken --group g10 --ack manual --max 1000 --timeout 20s | field delivery | sort | uniq -c | awk '{ print $1, $2 }')" \
        = "1000 1" ]
}

in_flight_some() { (($(lag_of "$1" in_flight) > 0)); }

@test "SIGTERM does the same" {
    filled ended 10
    gqctl consume ended --group g11 --max 20 3>&- > /dev/null &
    pid=$!
    eventually 10 lag_is g11 0
    kill "$pid"
    exit_of 143 "$pid"
    [ "$(gqctl group describe g11 -o json | field members)" = "[]" ]
}

@test "exec: the message on stdin, the rest in the environment; exit 0 acks" {
    gqctl topic create run --partitions 1 > /dev/null
    gqctl publish run 'hello world' --key k1 > /dev/null
    run -0 --separate-stderr gqctl consume run --group w --max 1 --timeout 20s \
        --exec 'echo "$(cat)|$GOQUEUE_TOPIC|$GOQUEUE_PARTITION|$GOQUEUE_KEY|$GOQUEUE_DELIVERY|$GOQUEUE_GROUP"'
    [ "$output" = "hello world|run|0|k1|1|w" ]
    lag_is w 0
}

@test "exec: a failing command is retried, then dead-lettered; redrive brings it back" {
    gqctl topic create jobs --partitions 1 --max-retries 3 --backoff-base 100ms > /dev/null
    printf 'good\nbad\n' | gqctl publish jobs -l > /dev/null
    cd "$BATS_TEST_TMPDIR"
    printf '#!/bin/sh\nread -r job\necho "$job" >> done.txt\n[ "$job" = good ]\n' > work.sh
    chmod +x work.sh
    run -0 --separate-stderr gqctl consume jobs --group w --max 4 --timeout 30s --exec ./work.sh
    [ "$(sort done.txt | uniq -c | awk '{ print $1, $2 }')" = $'3 bad\n1 good' ]
    [[ "$stderr" == *"delivery 3: exit code 1"* ]]
    dead() { [ "$(gqctl dlq list jobs -o json | field origin_partition count group)" = "0 3 w" ]; }
    eventually 10 dead
    [ "$(gqctl dlq peek jobs -o value)" = bad ]
    gqctl dlq redrive jobs > /dev/null
    [ "$(gqctl consume jobs --group w --max 1 --timeout 20s -o value)" = bad ]
    [ -z "$(gqctl dlq list jobs -o value)" ]
}

@test "exec with a program that is not there is a usage error, nothing is consumed" {
    filled untouched 1
    run -2 gqctl consume untouched --group w --exec ./no-such-program
    run -2 gqctl consume untouched --exec true
}

@test "exec may call gqctl for the same node" {
    filled nested 1
    gqctl consume nested --group w --max 1 --timeout 20s --exec "gqctl publish nested-out -" > /dev/null
    [ "$(gqctl consume nested-out -o value)" = 1 ]
}

@test "a hundred thousand numbers through a group, exact and quick" {
    seq 1 100000 | gqctl publish numbers -l > /dev/null
    SECONDS=0
    gqctl consume numbers --group g16 --max 100000 --timeout 20s -o value > "$BATS_TEST_TMPDIR/out"
    sort -n "$BATS_TEST_TMPDIR/out" | cmp - <(seq 1 100000)
    ((SECONDS < 15))
    lag_is g16 0
}

@test "no terminal, no stdin: nothing asks, nothing colours" {
    filled bare 2
    run -0 --separate-stderr setsid env TERM=dumb gqctl consume bare -o table < /dev/null
    [[ "$output$stderr" != *$'\x1b'* ]]
}

@test "values that would disturb a terminal are escaped in a table, whole in value" {
    gqctl topic create escapes --partitions 1 > /dev/null
    printf '\x1b[31mred\x00' | gqctl publish escapes - > /dev/null
    run -0 gqctl consume escapes -o table
    [[ "$output" == *'\x1b[31mred\x00'* ]]
    gqctl consume escapes -o value | cmp - <(printf '\x1b[31mred\x00\n')
}
