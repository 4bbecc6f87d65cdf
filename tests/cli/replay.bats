#!/usr/bin/env bats
# gqctl replay: to a group, to a topic, by offset and by time.

load helper

setup_file() { start_node; }
teardown_file() { stop_node; }

filled() {
    gqctl topic create "$1" --partitions 1 > /dev/null
    seq "$2" | gqctl publish "$1" -l > /dev/null
    first="$(gqctl consume "$1" --max 1 | field offset)"
}

@test "--group rewinds exactly the range" {
    filled rewound 10
    gqctl consume rewound --group g1 --max 10 --timeout 20s > /dev/null
    run -0 gqctl replay rewound --group g1 --from "$((first + 2))" --to "$((first + 5))"
    [ "$(field messages <<< "$output")" = 3 ]
    lag_is g1 3
    [ "$(gqctl consume rewound --group g1 --max 3 --timeout 20s --ack manual | field value delivery)" = $'3 1\n4 1\n5 1' ]
}

@test "--group by time" {
    filled timed 3
    gqctl consume timed --group g2 --max 3 --timeout 20s > /dev/null
    gqctl replay timed --group g2 --from -1h > /dev/null
    lag_is g2 3
    gqctl consume timed --group g2 --max 3 --timeout 20s > /dev/null
    run -0 --separate-stderr gqctl replay timed --group g2 --from +1h
    lag_is g2 0
}

@test "--to-topic publishes copies with key, headers and priority" {
    gqctl topic create source --partitions 1 > /dev/null
    gqctl publish source v1 --key k -H a=b -H a=c --priority high > /dev/null
    gqctl publish source --null --key k2 > /dev/null
    run -0 gqctl replay source --to-topic target
    [ "$(field messages to_topic <<< "$output")" = "2 target" ]
    diff <(gqctl consume source | field key value headers priority | sort) <(gqctl consume target | field key value headers priority | sort)
}

@test "--to-topic of a topic to itself copies what was there, once" {
    filled self 5
    gqctl replay self --to-topic self > /dev/null
    [ "$(gqctl consume self -o value | wc -l)" = 10 ]
}

@test "--rate holds it back" {
    filled paced 40
    SECONDS=0
    gqctl replay paced --to-topic paced-copy --rate 20 > /dev/null
    ((SECONDS >= 1 && SECONDS < 10))
    [ "$(gqctl consume paced-copy -o value | wc -l)" = 40 ]
}

@test "--partition: of that one alone" {
    gqctl topic create halved --partitions 2 > /dev/null
    for n in 0 1; do seq "${n}1" "${n}4" | gqctl publish halved -l --partition "$n" > /dev/null; done
    gqctl consume halved --group g7 --max 8 --timeout 20s > /dev/null
    [ "$(gqctl replay halved --group g7 --partition 1 --from earliest | field messages)" = 4 ]
    lag_is g7 4
    [ "$(gqctl consume halved --group g7 --max 4 --timeout 20s -o value)" = $'11\n12\n13\n14' ]
    gqctl replay halved --to-topic half --partition 0 > /dev/null
    [ "$(gqctl consume half -o value | sort)" = $'1\n2\n3\n4' ]
    run -4 gqctl replay halved --to-topic half --partition 2
}

@test "usage" {
    filled used 1
    run -2 gqctl replay used
    run -2 gqctl replay used --group g6 --to-topic t
    run -2 gqctl replay used --group g6 --rate 5
    run -4 gqctl replay not-there --group g
}
