#!/usr/bin/env bats
# gqctl bench: every workload gives one JSON object with its figures.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

figures() { field workload count msgs_per_s mb_per_s <<< "$output"; }

@test "publish, and log verify counts the same number" {
    run -0 --separate-stderr gqctl bench publish --size 100 --seconds 1 --topic benched -o json
    read -r workload count rate _ < <(figures)
    [ "$workload" = publish ]
    (($(printf '%.0f' "$rate") > 1000))
    [ "$(gqctl log verify "$GOQUEUE_DATA_DIR/logs/benched" -o value 2> /dev/null | total)" = "$count" ]
}

@test "queue: every message acked, nothing is left" {
    run -0 --separate-stderr gqctl bench queue --size 100 --seconds 1 --topic queued -o json
    read -r workload count _ < <(figures)
    [ "$workload" = queue ]
    ((count > 1000))
    [ "$(gqctl group lag bench -o value | total)" = 0 ]
}

@test "queue of random priorities: every message acked" {
    run -0 --separate-stderr gqctl bench queue --size 100 --seconds 1 --priorities random --topic mixed -o json
    [[ "$output" == *'"priorities":"random"'* ]]
    [ "$(gqctl priority stats --group bench --topic mixed -o json | field priority | sort -u | wc -l)" = 5 ]
    [ "$(gqctl priority stats --group bench --topic mixed -o value | total)" = 0 ]
}

@test "latency, read and e2e; temporary topics are gone afterwards" {
    for workload in latency read e2e; do
        run -0 --separate-stderr gqctl bench "$workload" --size 100 --seconds 1 -o json
        [ "$(field workload <<< "$output")" = "$workload" ]
        (($(field count <<< "$output") > 100))
        [ "$(wc -l <<< "$output")" = 1 ]
    done
    [[ "$(field p50_ms p99_ms p999_ms settings <<< "$output")" =~ ^[0-9.]+\ [0-9.]+\ [0-9.]+\ \{ ]]
    ! gqctl topic list -o value | grep -q '^bench-'
}

@test "a profile of the clients goes to stderr" {
    run -0 --separate-stderr gqctl bench publish --size 100 --seconds 1 --profile -o json
    [[ "$stderr" == *"function calls"* ]]
    (($(field count <<< "$output") > 100))
}

@test "what a client is refused is said in a line" {
    run -1 gqctl bench publish --size 2MiB --seconds 1
    [[ "${lines[0]}" == "gqctl: a value of 2097152 bytes is above the topic's limit of 1048576" ]]
    [ "${#lines[@]}" = 2 ]
}
