#!/usr/bin/env bats
# Priorities: what overtakes what, and gqctl priority stats.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

publish_all() { for p in background low normal high critical; do gqctl publish "$1" "$p" --priority "$p" > /dev/null; done; }

@test "a critical message overtakes a backlog, whatever partition it is in" {
    gqctl topic create jump --partitions 3 > /dev/null
    seq 20000 | gqctl publish jump -l --priority background > /dev/null
    gqctl publish jump one --priority critical > /dev/null
    gqctl publish jump two --priority critical > /dev/null
    [ "$(gqctl consume jump --group g --max 2 --timeout 30s -o value | sort)" = $'one\ntwo' ]
    [ "$(gqctl consume jump --group g --max 1 --timeout 30s -o json | field priority)" = 4 ]
}

@test "a critical message overtakes a backlog of a million" {
    gqctl topic create million --partitions 3 > /dev/null
    seq 1000000 | gqctl publish million -l --priority background > /dev/null
    gqctl consume million --group g --max 1 --timeout 60s > /dev/null
    gqctl publish million now --priority critical > /dev/null
    [ "$(gqctl consume million --group g --max 1 --timeout 60s -o value)" = now ]
}

@test "messages come by priority, within one by offset" {
    gqctl topic create ordered --partitions 1 > /dev/null
    publish_all ordered
    publish_all ordered
    run -0 gqctl consume ordered --group g --max 10 --timeout 30s -o value
    [ "$output" = $'critical\ncritical\nhigh\nhigh\nnormal\nnormal\nlow\nlow\nbackground\nbackground' ]
}

@test "a failed message of a high priority comes before a low backlog" {
    gqctl topic create again --partitions 1 > /dev/null
    gqctl publish again first --priority high > /dev/null
    seq 5000 | gqctl publish again -l --priority background > /dev/null
    receipt="$(gqctl consume again --group g --max 1 --timeout 30s --ack manual --visibility 5m -o json | field receipt)"
    gqctl nack "$receipt" --delay 0 > /dev/null
    [ "$(gqctl consume again --group g --max 1 --timeout 30s -o value)" = first ]
}

@test "a delayed critical message is critical when it is due" {
    gqctl topic create due --partitions 1 > /dev/null
    seq 5000 | gqctl publish due -l --priority low > /dev/null
    gqctl consume due --group g --max 10 --timeout 30s > /dev/null
    gqctl publish due soon --priority critical --delay 500ms > /dev/null
    eventually 20 scheduled_is due 0
    [ "$(gqctl consume due --group g --max 1 --timeout 30s -o value)" = soon ]
}

scheduled_is() { [ "$(gqctl topic describe "$1" -o json | field scheduled)" = "$2" ]; }

@test "priority stats: ready, in flight, came and went, by group, partition and priority" {
    gqctl topic create figures --partitions 2 > /dev/null
    seq 60 | gqctl publish figures -l --priority low > /dev/null
    seq 10 | gqctl publish figures -l --priority critical --partition 1 > /dev/null
    gqctl consume figures --group seen --max 4 --timeout 30s -o json > /dev/null
    run -0 gqctl priority stats --group seen --topic figures -o json
    [ "$(field priority < <(grep critical <<< "$output"))" = critical ]
    [ "$(field partition ready in_flight dequeued < <(grep critical <<< "$output"))" = "1 6 0 4" ]
    [ "$(field ready < <(grep '"low"' <<< "$output") | awk '{ sum += $1 } END { print sum }')" = 60 ]
    [ "$(gqctl priority stats --group seen --partition 1 -o json | field partition | sort -u)" = 1 ]
    run -0 gqctl priority stats -o table
    [[ "$output" == *seen*figures*critical* ]]
    run -4 gqctl priority stats --group nobody
}
