#!/usr/bin/env bats
# gqctl topic.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

@test "create with settings, describe says them" {
    run -0 gqctl topic create orders --partitions 4 --retention 2h --retention-bytes 1GiB --segment-size 1MiB --max-retries 5 \
        --visibility 10s --dlq off -o json
    [ "$(field topic partitions <<< "$output")" = "orders 4" ]
    run -0 gqctl topic describe orders -o json
    [ "$(field partitions retention_ms retention_bytes segment_bytes max_retries visibility_ms dlq_enabled messages <<< "$output")" \
        = "4 7200000 1073741824 1048576 5 10000 False 0" ]
    run -0 gqctl topic describe orders -o table
    [[ "$output" == *"retention_ms"*"2h"* ]]
}

@test "create twice fails, unless --if-not-exists" {
    gqctl topic create twice > /dev/null
    run -1 --separate-stderr gqctl topic create twice
    [[ "$stderr" == gqctl:*twice* ]]
    [ "$(wc -l <<< "$stderr")" = 1 ]
    run -0 gqctl topic create twice --if-not-exists
}

@test "a bad name or setting is a usage error" {
    run -2 gqctl topic create 'no/slash'
    run -1 gqctl topic create __internal
    run -2 gqctl topic create x --partitions 0
    run -2 gqctl topic create x --retention soon
}

@test "list prints names, internal ones only with --all" {
    gqctl topic create listed > /dev/null
    run -0 gqctl topic list -o value
    grep -qx listed <<< "$output"
    run ! grep -q '^__' <<< "$output"
    run -0 gqctl topic list --all -o value
    grep -qx __groups <<< "$output"
}

@test "alter changes settings and adds partitions, never removes them" {
    gqctl topic create altered --partitions 2 > /dev/null
    gqctl topic alter altered --partitions 3 --retention unlimited > /dev/null
    run -0 gqctl topic describe altered -o json
    [ "$(field partitions retention_ms <<< "$output")" = "3 -1" ]
    gqctl publish altered x --partition 2 > /dev/null
    run ! gqctl topic alter altered --partitions 1
    run -2 gqctl topic alter altered
}

@test "partitions show offsets and sizes" {
    gqctl topic create sized --partitions 2 > /dev/null
    seq 10 | gqctl publish sized -l --partition 1 > /dev/null
    run -0 gqctl topic partitions sized -o json
    rows="$(field partition online log_start segments <<< "$output")"
    [ "$rows" = $'0 True 0 1\n1 True 0 1' ]
    [ "$(gqctl consume sized -o value | wc -l)" = 10 ]
}

@test "delete removes the topic and its folder, and a new one of that name is empty" {
    gqctl publish gone old > /dev/null
    run -0 gqctl topic delete gone
    run -4 gqctl topic describe gone
    run -4 gqctl topic delete gone
    run -0 gqctl topic delete gone --if-exists
    gone_from_disk() { [ -z "$(find "$GOQUEUE_DATA_DIR/logs" -maxdepth 1 -name 'gone*')" ]; }
    eventually 20 gone_from_disk
    gqctl publish gone new > /dev/null
    [ "$(gqctl consume gone -o value)" = new ]
}

@test "purge drops what is before a position" {
    gqctl topic create purged --partitions 1 > /dev/null
    seq 10 | gqctl publish purged -l > /dev/null
    first="$(gqctl consume purged -o json | field offset | head -1)"
    gqctl topic purge purged --before "$((first + 4))" > /dev/null
    [ "$(gqctl consume purged -o value | head -1)" = 5 ]
    gqctl topic purge purged > /dev/null
    [ -z "$(gqctl consume purged -o value)" ]
    gqctl publish purged after > /dev/null
    [ "$(gqctl consume purged -o value)" = after ]
}

@test "purge of one partition leaves the others" {
    gqctl topic create purged-one --partitions 2 > /dev/null
    for n in 0 1; do seq "${n}1" "${n}3" | gqctl publish purged-one -l --partition "$n" > /dev/null; done
    gqctl topic purge purged-one --partition 1 > /dev/null
    [ "$(gqctl consume purged-one -o value)" = $'1\n2\n3' ]
}

@test "what is not there is exit 4, on one line" {
    for command in "topic describe" "topic partitions" "topic purge" "consume"; do
        # shellcheck disable=SC2086
        run -4 --separate-stderr gqctl $command nothing-here
        [[ "$stderr" == gqctl:*nothing-here* ]]
        [ "$(wc -l <<< "$stderr")" = 1 ]
    done
    gqctl topic create two --partitions 2 > /dev/null
    gqctl group reset mine --topic two --to earliest > /dev/null
    for command in "topic purge two" "consume two" "consume two --from 5" "consume two --from -1h" "replay two --to-topic two" \
        "replay two --group mine" "group reset mine --topic two --to latest"; do
        # shellcheck disable=SC2086
        run -4 --separate-stderr gqctl $command --partition 2
        [ "$stderr" = "gqctl: topic two has partitions 0..1, not 2" ]
    done
}
