#!/usr/bin/env bats
# gqctl dlq: list, peek, redrive, purge.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

# dead TOPIC N: N messages of TOPIC rejected by group g-TOPIC.
dead() {
    gqctl topic create "$1" --partitions 1 > /dev/null
    seq "$2" | gqctl publish "$1" -l --key-separator none > /dev/null
    gqctl consume "$1" --group "g-$1" --max "$2" --timeout 20s --ack manual | field receipt | gqctl reject --reason "bad $1" - > /dev/null
    eventually 15 letters "$1" "$2"
}

letters() { [ "$(gqctl dlq list "$1" -o value | wc -l)" = "$2" ]; }

@test "list says where a letter came from, why, how often and when; peek shows it" {
    dead told 2
    run -0 gqctl dlq list told -o json
    [ "$(field topic origin_partition count reason group <<< "$output" | sort -u)" = "told 0 1 bad told g-told" ]
    [[ "$(field time <<< "$output" | head -1)" == 20??-* ]]
    [ "$(gqctl dlq peek told -o value)" = $'1\n2' ]
    [ "$(gqctl dlq peek told --max 1 -o json | field value)" = 1 ]
    letters told 2
}

@test "redrive gives them to the group that failed them, once, with attempts from the start" {
    dead again 3
    run -0 gqctl dlq redrive again
    [ "$(field redriven published <<< "$output")" = "3 0" ]
    letters again 0
    run -0 gqctl consume again --group g-again --max 3 --timeout 20s --ack manual
    [ "$(field value delivery <<< "$output")" = $'1 1\n2 1\n3 1' ]
    run -124 --separate-stderr gqctl consume again --group h --max 4 --timeout 5s
    [ "$(wc -l <<< "$output")" = 3 ]
}

@test "redrive some: by offset, by reason, by group, at most so many" {
    dead some 4
    offset="$(gqctl dlq list some -o json | field offset | sed -n 2p)"
    gqctl dlq redrive some --partition 0 --offset "$offset" > /dev/null
    letters some 3
    [ "$(gqctl dlq redrive some --reason 'no such reason' | field redriven)" = 0 ]
    [ "$(gqctl dlq redrive some --group nobody | field redriven)" = 0 ]
    [ "$(gqctl dlq redrive some --reason bad --group g-some --max 1 | field redriven)" = 1 ]
    letters some 2
}

@test "redrive --publish is for everyone" {
    dead everyone 2
    run -0 gqctl dlq redrive everyone --publish
    [ "$(field redriven published <<< "$output")" = "0 2" ]
    letters everyone 0
    [ "$(gqctl consume everyone -o value)" = $'1\n2\n1\n2' ]
    [ "$(gqctl consume everyone -o json | tail -1 | field headers)" = None ]
}

@test "a letter whose origin is gone is published by redrive" {
    dead vanished 1
    gqctl topic purge vanished > /dev/null
    [ "$(gqctl dlq redrive vanished | field redriven published)" = "0 1" ]
    [ "$(gqctl consume vanished --group g-vanished --max 1 --timeout 20s -o value)" = 1 ]
}

@test "list, peek and purge some: by offset, by reason, by group" {
    dead parts 3
    offset="$(gqctl dlq list parts -o json | field offset | sed -n 2p)"
    [ "$(gqctl dlq list parts --partition 0 --offset "$offset" -o json | field origin_offset | wc -l)" = 1 ]
    [ "$(gqctl dlq peek parts --partition 0 --offset "$offset" -o value)" = 2 ]
    [ "$(gqctl dlq peek parts --reason 'bad parts' --max 2 -o value)" = $'1\n2' ]
    [ "$(gqctl dlq purge parts --group nobody | field purged)" = 0 ]
    [ "$(gqctl dlq purge parts --partition 0 --offset "$offset" | field purged)" = 1 ]
    [ "$(gqctl dlq peek parts -o value)" = $'1\n3' ]
}

@test "purge forgets the letters" {
    dead purged 3
    [ "$(gqctl dlq purge purged | field purged)" = 3 ]
    letters purged 0
    [ "$(gqctl dlq redrive purged | field redriven)" = 0 ]
}

@test "what is done with stays so: the group that knows it is not listed, and not deleted" {
    dead settled 2
    gqctl dlq redrive settled > /dev/null
    [[ " $(gqctl group list -o value | tr '\n' ' ')" != *__* ]]
    [[ "$(gqctl group list --all -o value)" == *__dlq* ]]
    run -1 gqctl group delete __dlq
    [[ "$output" == *internal* ]]
    run -1 gqctl group reset __dlq --topic settled.dlq --to earliest
    [[ "$output" == *internal* ]]
    letters settled 0
}

@test "without a topic: all dead letter queues and how much is in them" {
    dead overview 2
    [ "$(gqctl dlq list -o json | grep '"overview"' | field topic letters)" = "overview 2" ]
}

@test "a topic without dead letters has none; one that is not there is exit 4" {
    gqctl topic create healthy > /dev/null
    run -0 --separate-stderr gqctl dlq list healthy
    [ -z "$output" ]
    run -4 gqctl dlq list no-such-topic
}
