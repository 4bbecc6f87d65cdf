#!/usr/bin/env bats
# gqctl log dump and verify: files alone. One node fills them, and is down for most of the tests.

load helper

setup_file() {
    start_node
    gqctl topic create logged --partitions 2 > /dev/null
    for partition in 0 1; do seq 1000 | gqctl publish logged -l --partition "$partition" > /dev/null; done
    gqctl publish logged keyed --key k -H a=b --partition 1 > /dev/null
    gqctl down
}
teardown_file() { stop_node; }

setup() {
    rm -rf "$BATS_TEST_TMPDIR/copy"
    cp -r "$GOQUEUE_DATA_DIR" "$BATS_TEST_TMPDIR/copy"
    COPY="$BATS_TEST_TMPDIR/copy"
    segment="$(ls "$COPY"/logs/logged/0/*.log)"
}

# flip FILE POSITION: one bit of one byte.
flip() { "$GQ_PYTHON" -c '
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2])); byte = f.read(1)[0]; f.seek(int(sys.argv[2])); f.write(bytes([byte ^ 0x10]))' "$@"; }

@test "verify counts the messages of a data directory, a topic, a partition, a segment" {
    run -0 --separate-stderr gqctl log verify "$COPY" -o json
    [ "$(grep '"logged"' <<< "$output" | field partition messages problems)" = $'0 1000 0\n1 1001 0' ]
    [[ "$stderr" == *"no damage"* ]]
    [ "$(gqctl log verify "$COPY/logs/logged" -o value | total)" = 2001 ]
    [ "$(gqctl log verify "$COPY/logs/logged/1" -o value)" = 1001 ]
    [ "$(gqctl log verify "$segment" -o value)" = 1000 ]
}

@test "verify without a path takes the node's data directory" {
    run -0 --separate-stderr gqctl log verify -o json
    [ "$(grep '"logged"' <<< "$output" | field messages | total)" = 2001 ]
}

@test "a flipped bit: exit 1, file and position on stderr, the rest counted" {
    read -r position size < <(gqctl log dump "$segment" -o json | sed -n 500p | field position size)
    for at in 0 2 3 4 8 16 24 25 26 28 32 34; do
        flip "$segment" "$((position + at))"
        run -1 --separate-stderr gqctl log verify "$COPY/logs/logged/0" -o value
        [[ "$stderr" == *"$segment: position $position: offset "* ]]
        [ "$output" = 999 ]
        flip "$segment" "$((position + at))"
    done
    run -0 gqctl log verify "$COPY"
    ((size > 34))
}

@test "a torn tail is mentioned and no damage; one below what was synced is" {
    truncate -s -5 "$segment"
    run -1 --separate-stderr gqctl log verify "$COPY/logs/logged/0" -o value
    [ "$output" = 999 ]
    [[ "$stderr" == *"$segment"*"synced up to offset 1001"* ]]
    rm "$COPY/logs/logged/0/checkpoint"     # as after a crash before the first sync
    run -0 --separate-stderr gqctl log verify "$COPY/logs/logged/0" -o value
    [ "$output" = 999 ]
    [[ "$stderr" == *"$segment: position "*"torn tail"* ]]
}

@test "dump shows every record, control records too" {
    run -0 gqctl log dump "$COPY/logs/logged/1" -o json
    [ "$(grep -c '"value"' <<< "$output")" = 1001 ]
    [[ "$(head -1 <<< "$output")" == *'"control":{"type":"leader_change"'* ]]
    [ "$(tail -1 <<< "$output" | field key value headers)" = 'k keyed {"a": "b"}' ]
    [ "$(gqctl log dump "$segment" -o value --max 3 --from 1)" = $'1\n2\n3' ]
    run -0 gqctl log dump "$segment" -o table --max 2
    [[ "${lines[0]}" == OFFSET*POSITION*VALUE ]]
}

@test "dump goes on behind damage and exits 1" {
    position="$(gqctl log dump "$segment" -o json | sed -n 500p | field position)"
    flip "$segment" "$((position + 35))"
    run -1 --separate-stderr gqctl log dump "$segment" -o json
    [ "$(wc -l <<< "$output")" = 1000 ]
    [[ "$stderr" == *"position $position"* ]]
}

@test "a path that is not there is usage, one without segments is not found" {
    run -2 gqctl log verify "$COPY/nothing"
    mkdir "$COPY/empty"
    run -4 gqctl log verify "$COPY/empty"
}

@test "a damaged record in a running node: corrupt by fetch with file and position, all else served, the node stays up" {
    segment="$(ls "$GOQUEUE_DATA_DIR"/logs/logged/0/*.log)"
    position="$(gqctl log dump "$segment" -o json | sed -n 500p | field position)"
    size="$(stat -c %s "$segment")"
    flip "$segment" "$((position + 35))"
    gqctl up > /dev/null
    run -1 --separate-stderr gqctl consume logged --partition 0 -o value
    [[ "$stderr" == *"$segment"*"$position"* ]] || [[ "$stderr" == *corrupt* ]]
    (($(stat -c %s "$segment") >= size))
    [ "$(gqctl consume logged --partition 1 -o value | wc -l)" = 1001 ]
    gqctl publish logged more --partition 0 > /dev/null
    bad="$(gqctl log dump "$GOQUEUE_DATA_DIR/logs/logged/0" -o json --from 0 2> /dev/null | sed -n 500p | field offset)"
    [ "$(gqctl consume logged --partition 0 --from "$bad" -o value | tail -1)" = more ]
    gqctl status > /dev/null
    flip "$segment" "$((position + 35))"
    gqctl down
}
