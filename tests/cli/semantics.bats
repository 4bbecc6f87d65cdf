#!/usr/bin/env bats
# The semantics that are easy to get wrong, where a shell can show them. The others are tests/system's.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

kill_all() {
    # shellcheck disable=SC2046
    kill -9 $(gqctl status -o json | field pid)
    back() { gqctl status > /dev/null; }
    eventually 30 back
}

@test "every second message acked, all daemons killed with -9: exactly the unacked come back" {
    gqctl topic create halves --partitions 1 > /dev/null
    seq 1 2000 | gqctl publish halves -l > /dev/null
    gqctl consume halves --group g1 --max 1000 --timeout 20s --ack manual -o value > "$BATS_TEST_TMPDIR/first"
    awk -F '\t' '$2 % 2 == 0 { print $1 }' "$BATS_TEST_TMPDIR/first" | gqctl ack - > /dev/null
    kill_all
    awk -F '\t' '$2 % 2 == 1 { print $1 }' "$BATS_TEST_TMPDIR/first" | gqctl release - > /dev/null
    gqctl consume halves --group g1 --max 1500 --timeout 40s -o value | sort -n | \
        cmp - <({ seq 1 2 1000; seq 1001 2000; } | sort -n)
    lag_is g1 0
}

@test "after the queue is done and everything was killed, nothing comes again" {
    gqctl topic create emptied --partitions 3 > /dev/null
    seq 1 5000 | gqctl publish emptied -l > /dev/null
    gqctl consume emptied --group g2 --max 5000 --timeout 20s > /dev/null
    kill_all
    run -124 --separate-stderr gqctl consume emptied --group g2 --max 1 --timeout 2s
    [ -z "$output" ]
}

@test "power loss: a partition cut back to before acked offsets delivers everything new" {
    gqctl topic create power --partitions 1 > /dev/null
    seq 1 10 | gqctl publish power -l > /dev/null
    gqctl consume power --group g3 --max 10 --timeout 20s > /dev/null
    gqctl down
    folder="$GOQUEUE_DATA_DIR/logs/power/0"
    segment="$(ls "$folder"/*.log | tail -1)"
    position="$(gqctl log dump "$segment" -o json | grep '"value":"4"' | field position)"
    truncate -s "$position" "$segment"
    # The disk kept an older checkpoint, too.
    rm -f "$folder"/checkpoint "$folder"/producers.snapshot "$folder"/*.index "$folder"/*.timeindex "$folder"/*.runs
    gqctl up > /dev/null
    seq 101 110 | gqctl publish power -l > /dev/null
    [ "$(gqctl consume power --group g3 --max 10 --timeout 20s -o value | sort -n)" = "$(seq 101 110)" ]
    lag_is g3 0
}

@test "a torn tail is cut at start, and no acked offset is issued again" {
    gqctl topic create torn --partitions 1 > /dev/null
    seq 1 5 | gqctl publish torn -l > /dev/null
    gqctl down
    segment="$(ls "$GOQUEUE_DATA_DIR"/logs/torn/0/*.log | tail -1)"
    printf 'GQ\x01garbage of a write that was never finished' >> "$segment"
    gqctl up > /dev/null
    gqctl publish torn 6 > /dev/null
    [ "$(gqctl consume torn -o value)" = "$(seq 1 6)" ]
    [ "$(gqctl consume torn | field offset | sort -u | wc -l)" = 6 ]
    gqctl log verify "$GOQUEUE_DATA_DIR/logs/torn" > /dev/null
}

@test "a message whose consumer is killed with -9 three times is dead-lettered, its neighbours are not harmed" {
    gqctl topic create deadly --partitions 1 --max-retries 3 --backoff-base 100ms > /dev/null
    { echo poison; seq 1 20; } | gqctl publish deadly -l > /dev/null
    cd "$BATS_TEST_TMPDIR"
    cat > work.sh << 'WORK'
#!/bin/sh
read -r job
[ "$job" = poison ] && kill -9 "$PPID" && exit
echo "$job" >> done.txt
WORK
    chmod +x work.sh
    for _ in 1 2 3; do
        run gqctl consume deadly --group g5 --session 5s --timeout 60s --exec 'exec ./work.sh'
        [ "$status" = 137 ]
    done
    finished() { [ "$(gqctl dlq list deadly -o json | field count)" = 3 ]; }
    gqctl consume deadly --group g5 --max 20 --timeout 60s --exec 'exec ./work.sh'
    eventually 60 finished
    [ "$(sort -n done.txt)" = "$(seq 1 20)" ]
}

@test "a lease expires although nobody is connected" {
    gqctl topic create lonely --partitions 1 > /dev/null
    gqctl publish lonely x > /dev/null
    gqctl consume lonely --group g6 --ack manual --max 1 --timeout 20s --visibility 5s > /dev/null
    in_flight g6 1
    eventually 30 in_flight g6 0
    lag_is g6 1
}

@test "fetched by 500, acked by one: only the unacked one comes back" {
    gqctl topic create batch --partitions 1 > /dev/null
    seq 1 500 | gqctl publish batch -l > /dev/null
    gqctl consume batch --group g7 --max 500 --timeout 20s --ack manual -o value > "$BATS_TEST_TMPDIR/all"
    awk -F '\t' '$2 != 250 { print $1 }' "$BATS_TEST_TMPDIR/all" | gqctl ack - > /dev/null
    awk -F '\t' '$2 == 250 { print $1 }' "$BATS_TEST_TMPDIR/all" | gqctl release - > /dev/null
    [ "$(gqctl consume batch --group g7 --max 1 --timeout 20s -o value)" = 250 ]
    run -124 gqctl consume batch --group g7 --max 1 --timeout 1s
}

@test "lag equals what is deliverable, after purge and reset and restart" {
    gqctl topic create lag --partitions 2 > /dev/null
    seq 1 100 | gqctl publish lag -l > /dev/null
    gqctl consume lag --group g8 --max 30 --timeout 20s > /dev/null
    lag_is g8 70
    gqctl restart groupd > /dev/null
    eventually 15 lag_is g8 70
    gqctl topic purge lag > /dev/null
    eventually 15 lag_is g8 0
    seq 1 5 | gqctl publish lag -l > /dev/null
    eventually 15 lag_is g8 5
    gqctl group reset g8 --to earliest > /dev/null
    lag_is g8 5
}

@test "dead letters are exactly one per group and origin, also when groupd is restarted between attempts" {
    gqctl topic create once --partitions 1 --max-retries 2 --backoff-base 100ms > /dev/null
    gqctl publish once x > /dev/null
    run -0 gqctl consume once --group g9 --max 1 --timeout 20s --exec false
    kill -9 "$(pid_of groupd)"
    run -0 gqctl consume once --group g9 --max 1 --timeout 30s --exec false
    run -0 gqctl consume once --group h --max 2 --timeout 30s --exec false
    two() { [ "$(gqctl dlq list once -o json | field group count origin_offset | sort)" = $'g9 2 1\nh 2 1' ]; }
    eventually 20 two
}

@test "garbage on the sockets: the daemons stay up, other clients are unharmed" {
    before="$(gqctl status -o json | field pid)"
    for socket in "$GOQUEUE_RUNTIME_DIR"/*/{metad,logd,groupd,delayd}.sock; do
        "$GQ_PYTHON" - "$socket" << 'PY'
import random, socket, sys
import zmq
raw = socket.socket(socket.AF_UNIX)
raw.connect(sys.argv[1])
raw.sendall(random.Random(7).randbytes(4096))
with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
    dealer.linger = 200
    dealer.connect("ipc://" + sys.argv[1])
    for frames in ([b""], [b"\xff" * 100], [b"\x99" + bytes(50)], [b"x", b"y", b"z"], [b"\x99\x01\xcd\xff\xff\x01\x0a\xc4\x00\x00\x00\x00\x90"]):
        dealer.send_multipart(frames)
    dealer.poll(300)
PY
    done
    gqctl publish garbage fine > /dev/null
    [ "$(gqctl consume garbage -o value)" = fine ]
    [ "$(gqctl status -o json | field pid)" = "$before" ]
}

@test "metad down: what is led goes on being served" {
    gqctl topic create led --partitions 1 > /dev/null
    gqctl consume led --group g11 --max 3 --timeout 60s -o value > "$BATS_TEST_TMPDIR/out" 3>&- &
    consumer=$!
    member() { [ "$(gqctl group list -o json | grep '"g11"' | field members)" = 1 ]; }
    eventually 10 member
    mkfifo "$BATS_TEST_TMPDIR/in"
    gqctl publish led -l < "$BATS_TEST_TMPDIR/in" > /dev/null 3>&- &
    publisher=$!
    exec 7> "$BATS_TEST_TMPDIR/in"
    echo 1 >&7
    got() { [ "$(wc -l < "$BATS_TEST_TMPDIR/out")" = "$1" ]; }
    eventually 10 got 1
    metad="$(pid_of metad)"
    kill -STOP "$metad"
    echo 2 >&7
    eventually 10 got 2
    echo 3 >&7
    exec 7>&-
    wait "$consumer"
    kill -CONT "$metad"
    wait "$publisher"
    [ "$(cat "$BATS_TEST_TMPDIR/out")" = $'1\n2\n3' ]
}
