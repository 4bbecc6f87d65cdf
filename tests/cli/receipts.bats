#!/usr/bin/env bats
# ack, nack, reject, extend, release by receipt: from another process than the one that consumed.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

# taken TOPIC GROUP N [OPTIONS]: receipts of N messages, leased and let go of by their process.
taken() { gqctl consume "$1" --group "$2" --max "$3" --timeout 20s --ack manual -o json "${@:4}" | field receipt; }

filled() {
    gqctl topic create "$1" --partitions 1 "${@:3}" > /dev/null
    seq "$2" | gqctl publish "$1" -l > /dev/null
}

@test "value output is receipt, tab, value, for read" {
    filled reading 1
    IFS=$'\t' read -r receipt value < <(gqctl consume reading --group g1 --max 1 --timeout 20s --ack manual -o value)
    [ "$value" = 1 ]
    [[ "$receipt" == reading:0:*:1:* ]]
    gqctl ack "$receipt" > /dev/null
    lag_is g1 0
}

@test "receipts outlive their process; ack by stdin" {
    filled acked 3
    taken acked g2 3 > "$BATS_TEST_TMPDIR/receipts"
    in_flight g2 3
    run -0 gqctl ack - < "$BATS_TEST_TMPDIR/receipts"
    [ "$(field op ok <<< "$output" | sort -u)" = "ack True" ]
    lag_is g2 0
    run -124 gqctl consume acked --group g2 --max 1 --timeout 1s
}

@test "release: back at once, uncounted" {
    filled released 1
    gqctl release "$(taken released g3 1)" > /dev/null
    run -0 gqctl consume released --group g3 --max 1 --timeout 20s --ack manual
    [ "$(field value delivery <<< "$output")" = "1 1" ]
}

@test "nack with a delay waits that long; counted" {
    filled nacked 1
    receipt="$(taken nacked g4 1)"
    start="$(date +%s%N)"
    gqctl nack --delay 1500ms "$receipt" > /dev/null
    run -0 gqctl consume nacked --group g4 --max 1 --timeout 20s --ack manual
    waited=$((($(date +%s%N) - start) / 1000000))
    [ "$(field delivery <<< "$output")" = 2 ]
    ((waited >= 1500 && waited < 6000))
}

@test "nack without a delay backs off, doubling, and never spins" {
    filled backing 1 --max-retries 5 --backoff-base 300ms
    for wait in 300 600; do
        receipt="$(taken backing g5 1)"
        start="$(date +%s%N)"
        gqctl nack "$receipt" > /dev/null
        gqctl consume backing --group g5 --ack none --max 1 --timeout 20s > /dev/null
        waited=$((($(date +%s%N) - start) / 1000000))
        ((waited >= wait && waited < wait + 8000))
    done
}

@test "reject: to the dead letter queue at once, with the reason" {
    filled rejected 2
    { read -r first; read -r second; } < <(taken rejected g6 2)
    gqctl reject --reason 'no such customer' "$first" > /dev/null
    gqctl ack "$second" > /dev/null
    dead() { [ "$(gqctl dlq list rejected -o json | field reason count group)" = "no such customer 1 g6" ]; }
    eventually 10 dead
    lag_is g6 0
}

@test "extend keeps a message past its visibility timeout" {
    filled extended 2
    { read -r first; read -r second; } < <(taken extended g7 2 --visibility 2s)
    gqctl extend --for 60s "$first" > /dev/null
    run -0 gqctl consume extended --group g7 --max 1 --timeout 20s -o value
    [ "$output" = 2 ]
    run -0 gqctl ack "$first"
    run -1 --separate-stderr gqctl ack "$second"
    [[ "$stderr" == gqctl:*"$second"* ]]
}

@test "a stale receipt is refused, and the one who has it now keeps it" {
    filled stale 1
    a="$(taken stale g8 1 --visibility 1s)"
    b="$(taken stale g8 1)"
    [ "$a" != "$b" ]
    run -1 --separate-stderr gqctl ack "$a"
    [ "$(field ok error <<< "$output")" = "False stale_receipt" ]
    in_flight g8 1
    run -0 gqctl ack "$b"
    lag_is g8 0
}

@test "a late ack counts while nobody else has the message" {
    filled lateack 1
    receipt="$(taken lateack g9 1 --visibility 500ms)"
    returned() { in_flight g9 0; }
    eventually 10 returned
    run -0 gqctl ack "$receipt"
    lag_is g9 0
}

@test "a receipt of a topic that was deleted and made anew is refused" {
    filled remade 1
    receipt="$(taken remade g10 1)"
    gqctl topic delete remade > /dev/null
    filled remade 1
    run ! gqctl ack "$receipt"
    [ "$(gqctl consume remade --group g10 --max 1 --timeout 20s -o value)" = 1 ]
}

@test "what is no receipt is said" {
    run -1 --separate-stderr gqctl ack not-a-receipt
    [[ "$stderr" == *"bad receipt"* ]]
    [ "$(wc -l <<< "$stderr")" = 1 ]
    run -2 gqctl ack
    run -2 gqctl extend x
}
