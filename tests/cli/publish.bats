#!/usr/bin/env bats
# gqctl publish: every form, and what a shell may feed it.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

# one TOPIC: a topic with one partition, so that order is what was published.
one() { gqctl topic create "$1" --partitions 1 > /dev/null; }
values() { gqctl consume "$1" -o value; }

@test "a value: prints partition and offset, and makes the topic" {
    run -0 gqctl publish fresh hello -o value
    [[ "$output" =~ ^[0-2]\ [0-9]+$ ]]
    run -0 gqctl publish fresh hello
    [ "$(field topic <<< "$output")" = fresh ]
    [ "$(values fresh)" = $'hello\nhello' ]
}

@test "stdin whole, with NUL bytes and newlines" {
    one whole
    printf 'a\0b\nc\xff' > "$BATS_TEST_TMPDIR/in"
    gqctl publish whole - < "$BATS_TEST_TMPDIR/in" > /dev/null
    values whole | head -c -1 | cmp - "$BATS_TEST_TMPDIR/in"
}

@test "empty values, null values and empty keys are different things" {
    one empties
    gqctl publish empties '' > /dev/null
    gqctl publish empties --null > /dev/null
    gqctl publish empties - < /dev/null > /dev/null
    gqctl publish empties x --key '' > /dev/null
    [ "$(gqctl consume empties -o json | field value key)" = $' None\nNone None\n None\nx ' ]
}

@test "a message a line: the last one without newline, CRLF, empty lines, NUL" {
    one lines
    printf 'a\r\nb\n\nc\0d\ne' | gqctl publish lines -l > /dev/null
    printf 'a\nb\n\nc\0d\ne\n' > "$BATS_TEST_TMPDIR/expected"
    values lines | cmp - "$BATS_TEST_TMPDIR/expected"
    one crs
    printf 'a\r\nb' | gqctl publish crs -l --keep-cr > /dev/null
    [ "$(values crs)" = $'a\r\nb' ]
}

@test "empty input publishes nothing and is fine" {
    one none
    run -0 gqctl publish none -l < /dev/null
    [ "$(field published <<< "$output")" = 0 ]
    run -0 gqctl publish none --jsonl < /dev/null
    [ -z "$(values none)" ]
}

@test "a line that is too long is an error that names it; what was before it is there, what is after it is not" {
    one long
    { seq 1 3; head -c 2000000 /dev/zero | tr '\0' x; echo; seq 5 6; } > "$BATS_TEST_TMPDIR/in"
    run -1 --separate-stderr gqctl publish long -l < "$BATS_TEST_TMPDIR/in"
    [[ "$stderr" == *"line 4"*1048576*"max-message-bytes"*"3 before it were published"* ]]
    [ "$(wc -l <<< "$stderr")" = 1 ]
    [ "$(values long)" = $'1\n2\n3' ]
    gqctl topic alter long --max-message-bytes 3MiB > /dev/null
    gqctl publish long -l < "$BATS_TEST_TMPDIR/in" > /dev/null
    [ "$(values long | tail -n +4 | wc -c)" = "$(wc -c < "$BATS_TEST_TMPDIR/in")" ]
}

@test "a value that is too long is an error, and the next one is fine" {
    one big
    head -c 1048576 /dev/zero | gqctl publish big - > /dev/null
    run -1 --separate-stderr bash -c 'head -c 1048577 /dev/zero | gqctl publish big -'
    [[ "$stderr" == gqctl:*1048576* ]]
    [ "$(values big | wc -c)" = 1048577 ]
}

@test "keys: by option, by separator; the same key goes to the same partition" {
    gqctl topic create keyed --partitions 3 > /dev/null
    printf 'a:1\nb:2:x\na:3\nno key\n' | gqctl publish keyed -l --key-separator : > /dev/null
    run -0 gqctl consume keyed -o json
    [ "$(field key value <<< "$output" | sort)" = $'None no key\na 1\na 3\nb 2:x' ]
    [ "$(grep '"key":"a"' <<< "$output" | field partition | sort -u | wc -l)" = 1 ]
    [ "$(gqctl consume keyed -o value --key-separator = | grep '^b')" = b=2:x ]
    for _ in 1 2 3; do gqctl publish keyed v --key same -o json; done | field partition | sort -u | wc -l | grep -qx 1
}

@test "headers keep order and duplicates; gq- is the system's" {
    one headed
    gqctl publish headed v -H a=1 --header b=x=y -H a=2 > /dev/null
    [ "$(gqctl consume headed -o json | field headers)" = '[["a", "1"], ["b", "x=y"], ["a", "2"]]' ]
    run -2 gqctl publish headed v -H gq-x=1
    run -2 gqctl publish headed v -H nothing
}

@test "priority by number and name, partition by number" {
    gqctl topic create lanes --partitions 2 > /dev/null
    gqctl publish lanes a --priority critical --partition 1 > /dev/null
    gqctl publish lanes b --priority 4 --partition 0 > /dev/null
    [ "$(gqctl consume lanes -o json | field value priority partition | sort)" = $'a 0 1\nb 4 0' ]
    run -2 gqctl publish lanes x --priority urgent
    run -4 gqctl publish lanes x --partition 2
}

@test "json lines: every field, and what consume printed reads back as it was" {
    one json
    cat > "$BATS_TEST_TMPDIR/in" << 'LINES'
{"value": "text", "key": "k", "headers": {"h": "1"}, "priority": "high"}
{"value": {"deep": [1, 2]}}

{"value": "AP8=", "encoding": "base64", "key": null}
{"value": null, "key": ""}
LINES
    run -0 gqctl publish json --jsonl < "$BATS_TEST_TMPDIR/in"
    [ "$(field published <<< "$output")" = 4 ]
    gqctl consume json -o json > "$BATS_TEST_TMPDIR/first"
    [ "$(field value key <<< "$(head -2 "$BATS_TEST_TMPDIR/first")")" = $'text k\n{"deep":[1,2]} None' ]
    one copy
    gqctl publish copy --jsonl < "$BATS_TEST_TMPDIR/first" > /dev/null
    diff <(gqctl consume copy -o json | field key value headers priority encoding) \
        <(field key value headers priority encoding < "$BATS_TEST_TMPDIR/first")
}

@test "a bad json line is named; those before it are there" {
    one badjson
    run -1 --separate-stderr gqctl publish badjson --jsonl <<< $'{"value": "1"}\n{"valeu": "2"}\n{"value": "3"}'
    [[ "$stderr" == *"line 2: unknown field 'valeu'"*"1 before it"* ]]
    [ "$(values badjson)" = 1 ]
}

@test "acks and compression" {
    one squeezed
    head -c 500000 /dev/zero | gqctl publish squeezed - --compress zstd --acks all > /dev/null
    [ "$(values squeezed | wc -c)" = 500001 ]
    size="$(gqctl topic describe squeezed -o json | field bytes)"
    ((size < 50000))
    gqctl publish squeezed fire --acks none > /dev/null
    there() { values squeezed | grep -q fire; }
    eventually 5 there
}

@test "usage: exactly one source" {
    run -2 gqctl publish t
    run -2 gqctl publish t v -l
    run -2 gqctl publish t v --key-separator :
    run -2 gqctl publish t v --delay 1s --at now
    run -2 gqctl publish t v --delay soon
}

@test "lines go out as they come, not when stdin ends" {
    one live
    { echo early; sleep 30; } | gqctl publish live -l > /dev/null 3>&- &
    pid=$!
    early() { [ "$(values live)" = early ]; }
    eventually 10 early
    kill "$pid" 2> /dev/null || true
}

@test "a hundred thousand lines are quick" {
    SECONDS=0
    run -0 bash -c 'seq 1 100000 | gqctl publish fast -l'
    ((SECONDS < 15))
    [ "$(field published <<< "$output")" = 100000 ]
    values fast | sort -n | cmp - <(seq 1 100000)
}
