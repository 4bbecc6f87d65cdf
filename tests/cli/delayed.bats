#!/usr/bin/env bats
# Delayed messages: when they come, what is listed meanwhile, cancelling, reading and replaying them.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

one() { gqctl topic create "$1" --partitions 1 > /dev/null; }

# arrivals: stdin's lines of JSON, each with the time it came, in microseconds.
arrivals() {
    while IFS= read -r line; do echo "${EPOCHREALTIME/./} $line"; done
}

# after FILE SECONDS: the one message in it came at least so long after it was published, and not much later.
after() {
    local came line late
    read -r came line < "$1"
    late=$((came - $(field timestamp <<< "$line") - $2 * 1000000))
    echo "$2 s and $late us"
    ((late >= 0 && late < 5000000))
}

@test "publish --delay 2s: nothing at 1.9 s, the message after 2 s; for a reader, for a group, for who looks" {
    one later
    gqctl consume later --max 1 --timeout 30s -o json | arrivals > "$BATS_TEST_TMPDIR/reader" 3>&- &
    reader=$!
    gqctl consume later --group g --max 1 --timeout 30s -o json | arrivals > "$BATS_TEST_TMPDIR/group" 3>&- &
    group=$!
    eventually 20 gqctl group describe g
    gqctl publish later x --delay 2s > /dev/null
    run -0 gqctl consume later -o value
    [ -z "$output" ]
    [ "$(gqctl topic describe later -o json | field scheduled)" = 1 ]
    wait "$reader" "$group"
    after "$BATS_TEST_TMPDIR/reader" 2
    after "$BATS_TEST_TMPDIR/group" 2
    [ "$(gqctl consume later -o value)" = x ]
    [ "$(gqctl topic describe later -o json | field scheduled)" = 0 ]
    lag_is g 0
}

@test "who waits at the end sees what was published before and comes due meanwhile" {
    one before
    gqctl publish before early --delay 3s > /dev/null
    gqctl publish before now > /dev/null
    [ "$(gqctl consume before --max 2 --timeout 30s -o value)" = $'now\nearly' ]
    gqctl publish before late --delay 3s > /dev/null
    [ "$(gqctl consume before --from latest --max 1 --timeout 30s -o value)" = late ]
}

@test "--at: a time ahead, relative or not; one that is past means now" {
    one at
    gqctl publish at ahead --at +1h > /dev/null
    gqctl publish at then --at "$(date -Ins -d '+2 hours' | tr , .)" > /dev/null
    gqctl publish at past --at 2020-01-01 > /dev/null
    gqctl publish at negative --delay -1s > /dev/null
    gqctl publish at none --delay 0 > /dev/null
    [ "$(gqctl consume at -o value)" = $'past\nnegative\nnone' ]
    remaining="$(gqctl delayed list at -o json | field remaining_ms)"
    read -rd '' first second <<< "$remaining" || true
    ((first > 3500000 && first <= 3600000 && second > 7100000 && second <= 7200000))
}

@test "delays up to the wheel's end, not beyond" {
    one bounds
    gqctl publish bounds v --delay 671088640ms > /dev/null
    for delay in 671088641ms 2147483648ms 4294967295ms 4294967296ms 3650d 9223372036854775808 NaN inf soon; do
        run -2 --separate-stderr gqctl publish bounds v --delay "$delay"
        [[ "$stderr" == gqctl:* ]]
        [ "$(wc -l <<< "$stderr")" = 1 ]
    done
    run -1 --separate-stderr gqctl publish bounds --jsonl <<< $'{"value": "a", "delay": 60}\n{"value": "b", "delay": 671088.641}'
    [[ "$stderr" == *"line 2: "*"too long"*"the 1 before it"* ]]
    [ "$(gqctl delayed list bounds -o value | wc -l)" = 2 ]
}

@test "list: by due time over all partitions, with keys; paged; a part of it" {
    gqctl topic create listed --partitions 3 > /dev/null
    printf '%s\n' '{"value": "", "key": "d", "delay": 4000, "partition": 0}' '{"value": "", "key": "a", "delay": 1000, "partition": 1}' \
        '{"value": "", "key": "c", "delay": 3000, "partition": 2}' '{"value": "", "key": "b", "delay": 2000, "partition": 0}' \
        '{"value": "", "delay": 5000, "partition": 1}' | gqctl publish listed --jsonl > /dev/null
    [ "$(gqctl delayed list listed | field key partition)" = $'a 1\nb 0\nc 2\nd 0\nNone 1' ]
    [ "$(gqctl delayed list listed --max 2 | field key)" = $'a\nb' ]
    [ "$(gqctl delayed list listed --partition 0 | field key)" = $'b\nd' ]
    [ "$(gqctl delayed stats listed -o value)" = $'2\n2\n1' ]
    [ "$(gqctl topic partitions listed -o json | field scheduled)" = $'2\n2\n1' ]
    seq 1 1200 | gqctl publish listed -l --delay 1h --partition 2 > /dev/null
    [ "$(gqctl delayed list listed -o value | wc -l)" = 1205 ]
    [ "$(gqctl delayed list listed -o value | sort -u | wc -l)" = 1205 ]
    gqctl delayed list listed | field due_us > "$BATS_TEST_TMPDIR/due"
    sort -n "$BATS_TEST_TMPDIR/due" | cmp - "$BATS_TEST_TMPDIR/due"
    run -4 gqctl delayed list nowhere
    run -4 gqctl delayed list listed --partition 3
}

@test "cancel: nobody gets it; the result is true, and the exit code says which it was" {
    one called
    gone="$(gqctl publish called gone --delay 2s -o value)"
    gqctl publish called kept --delay 2500ms > /dev/null
    run -0 gqctl delayed cancel called $gone
    [ "$(field result <<< "$output")" = cancelled ]
    run -0 gqctl delayed cancel called "${gone/ /:}" -o value
    [ "$output" = already_cancelled ]
    [ "$(gqctl consume called --group called --max 1 --timeout 30s -o json | field value offset)" = "kept $((${gone#* } + 1))" ]
    [ "$(gqctl consume called -o value)" = kept ]
    run -1 --separate-stderr gqctl delayed cancel called "0:$((${gone#* } + 1))" -o value
    [ "$output" = delivered ]
    [[ "$stderr" == "gqctl: called 0:"*"due before"* ]]
    run -4 --separate-stderr gqctl delayed cancel called 0:99 -o value
    [ "$output" = not_found ]
    plain="$(gqctl publish called plain -o value)"
    run -4 gqctl delayed cancel called $plain
    run -4 gqctl delayed cancel called 7:0
    run -4 gqctl delayed cancel nowhere 0:0
    run -2 gqctl delayed cancel called 17
    lag_is called 1
}

@test "cancel what is listed" {
    gqctl topic create all --partitions 2 > /dev/null
    seq 1 20 | gqctl publish all --delay 1h -l > /dev/null
    gqctl delayed list all --max 15 -o value > "$BATS_TEST_TMPDIR/some"
    gqctl delayed cancel all - < "$BATS_TEST_TMPDIR/some" > /dev/null
    [ "$(gqctl delayed list all -o value | wc -l)" = 5 ]
    gqctl delayed stats all | field scheduled cancelled > "$BATS_TEST_TMPDIR/stats"
    [ "$(awk '{ print s += $1, c += $2 }' "$BATS_TEST_TMPDIR/stats" | tail -1)" = "5 15" ]
}

@test "consume and replay --include-delayed; what was printed reads back with its time" {
    one source
    printf '%s\n' '{"value": "now", "key": "k"}' '{"value": "later", "headers": {"a": "b"}, "delay": 3600, "priority": "high"}' |
        gqctl publish source --jsonl > /dev/null
    [ "$(gqctl consume source -o value)" = now ]
    [ "$(gqctl consume source --include-delayed -o value)" = $'now\nlater' ]
    gqctl replay source --to-topic plain > /dev/null
    [ "$(gqctl consume plain --include-delayed -o value)" = now ]
    gqctl replay source --to-topic whole --include-delayed > /dev/null
    gqctl consume source --include-delayed | gqctl publish copy --jsonl > /dev/null
    for topic in whole copy; do
        [ "$(gqctl consume "$topic" -o value)" = now ]
        diff <(gqctl consume source --include-delayed | field value key headers priority deliver_at | sort) \
            <(gqctl consume "$topic" --include-delayed | field value key headers priority deliver_at | sort)
    done
    run -2 gqctl replay source --group g --include-delayed
    run -2 gqctl consume source --group g --include-delayed
}

@test "kill -9 delayd: what came due meanwhile comes once it is back, the rest in time" {
    one killed
    gqctl publish killed soon --delay 300ms > /dev/null
    gqctl publish killed later --delay 3s > /dev/null
    kill -9 "$(pid_of delayd)"
    [ "$(gqctl consume killed --group killed --max 2 --timeout 40s -o value)" = $'soon\nlater' ]
    lag_is killed 0
    [ "$(gqctl consume killed -o value)" = $'soon\nlater' ]
}
