#!/usr/bin/env bats
# gqctl group.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

filled() {
    gqctl topic create "$1" --partitions "${3:-1}" > /dev/null
    seq "$2" | gqctl publish "$1" -l > /dev/null
}

@test "list and describe: members, assignment, committed, in flight, lag" {
    filled described 10 2
    gqctl consume described --group seen --max 4 --timeout 20s > /dev/null
    gqctl consume described --group seen --max 100 --ack manual > /dev/null 3>&- &
    pid=$!
    eventually 15 in_flight seen 6
    run -0 gqctl group describe seen -o json
    [ "$(field group mode lag state <<< "$output")" = "seen partitioned 6 stable" ]
    [[ "$output" == *'"assignment":["described/0","described/1"]'* ]]
    run -0 gqctl group describe seen -o table
    [[ "$output" == *members:*partitions:* ]]
    kill "$pid"
    exit_of 143 "$pid"
    [ "$(gqctl group list -o json | grep '"seen"' | field group members lag)" = "seen 0 6" ]
}

@test "lag by partition adds up" {
    filled lagging 100 3
    gqctl consume lagging --group l --max 40 --timeout 20s > /dev/null
    [ "$(gqctl group lag l -o value | total)" = 60 ]
    [ "$(gqctl group lag l -o json | field partition)" = $'0\n1\n2' ]
}

@test "reset to an offset, the beginning, the end, a time" {
    filled reset 10
    first="$(gqctl consume reset -o json | field offset | head -1)"
    gqctl consume reset --group r --max 10 --timeout 20s > /dev/null
    gqctl group reset r --to "$((first + 7))" > /dev/null
    lag_is r 3
    [ "$(gqctl consume reset --group r --max 3 --timeout 20s -o value)" = $'8\n9\n10' ]
    gqctl group reset r --to earliest > /dev/null
    lag_is r 10
    gqctl group reset r --to latest > /dev/null
    lag_is r 0
    gqctl group reset r --to -1h > /dev/null
    lag_is r 10
    run -2 gqctl group reset r
    run -2 gqctl group reset r --to sometime
}

@test "reset of one partition leaves the others where they are" {
    filled part 0 2
    for n in 0 1; do seq 5 | gqctl publish part -l --partition "$n" > /dev/null; done
    gqctl consume part --group rp --max 10 --timeout 20s > /dev/null
    gqctl group reset rp --to earliest --partition 1 > /dev/null
    [ "$(gqctl group lag rp -o json | field partition lag)" = $'0 0\n1 5' ]
}

@test "reset makes a group that is not there, with --topic" {
    filled early 5
    gqctl group reset fresh --topic early --to latest > /dev/null
    gqctl publish early 6 > /dev/null
    [ "$(gqctl consume early --group fresh --max 1 --timeout 20s -o value)" = 6 ]
    run -4 gqctl group reset nobody --to earliest
}

@test "pause hands out nothing, resume goes on" {
    filled paused 2
    gqctl consume paused --group p --max 1 --timeout 20s > /dev/null
    gqctl group pause p > /dev/null
    run -124 gqctl consume paused --group p --max 1 --timeout 1s
    [ "$(gqctl group describe p -o json | field paused)" = True ]
    gqctl group resume p > /dev/null
    [ "$(gqctl consume paused --group p --max 1 --timeout 20s -o value)" = 2 ]
}

@test "delete: not while it has members, unless --force; then it begins anew" {
    filled deleted 2
    gqctl consume deleted --group d --max 5 > /dev/null 3>&- &
    pid=$!
    eventually 10 lag_is d 0
    run -1 --separate-stderr gqctl group delete d
    [[ "$stderr" == gqctl:*d* ]]
    kill "$pid"
    exit_of 143 "$pid"
    gqctl group delete d 2> /dev/null > /dev/null
    run -4 gqctl group describe d
    [ "$(gqctl consume deleted --group d --max 2 --timeout 20s -o value)" = $'1\n2' ]
    gqctl consume deleted --group d --exec 'sleep 60' > /dev/null 3>&- &
    pid=$!
    member() { [ "$(gqctl group list -o json | grep '"d"' | field members)" = 1 ]; }
    eventually 10 member
    run -1 gqctl group delete d
    run -0 gqctl group delete d --force
    kill "$pid"
    exit_of 143 "$pid"
}

@test "a consumer killed with -9: what it held comes back within the session timeout" {
    filled killed 5
    gqctl consume killed --group k --session 5s --exec 'sleep 60' 3>&- &
    eventually 10 in_flight_some k
    # gqctl is a shell function: the job is a shell around the process that consumes.
    victim="$(gqctl group describe k -o json | field members | "$GQ_PYTHON" -c 'import json,sys; print(json.load(sys.stdin)[0]["client"].rpartition(":")[2])')"
    kill -9 "$victim"
    run -0 gqctl consume killed --group k --max 5 --timeout 60s -o value
    [ "$(sort -n <<< "$output")" = $'1\n2\n3\n4\n5' ]
}

in_flight_some() { (($(lag_of "$1" in_flight) > 0)); }

@test "a shared group: more members than partitions, all work" {
    filled pooled 0
    for n in 1 2 3; do
        gqctl consume pooled --group pool --mode shared --exec 'sleep 0.1' 3>&- > /dev/null &
        pids[n]=$!
    done
    three() { [ "$(gqctl group list -o json | grep '"pool"' | field members mode)" = "3 shared" ]; }
    eventually 20 three
    seq 30 | gqctl publish pooled -l > /dev/null
    eventually 20 lag_is pool 0
    kill "${pids[@]}"
    for pid in "${pids[@]}"; do exit_of 143 "$pid"; done
    run -1 gqctl consume pooled --group pool --mode partitioned --max 1 --timeout 2s
}

@test "offsets are exported as JSON for eyes and scripts" {
    filled exported 3
    gqctl consume exported --group e --max 3 --timeout 20s > /dev/null
    exported() { grep -q '"committed"' "$GOQUEUE_DATA_DIR/offsets/e/exported-0.offset"; }
    eventually 15 exported
}

@test "a group that is not there is exit 4" {
    for command in describe lag pause delete; do
        run -4 gqctl group $command nobody
    done
}
