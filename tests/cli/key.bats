#!/usr/bin/env bats
# gqctl key.

load helper

setup_file() {
    export GOQUEUE_METAD_ADDR=off GOQUEUE_LOGD_ADDR=off GOQUEUE_GROUPD_ADDR=off
    start_node
}
teardown_file() { stop_node; }

@test "create prints the secret once, list never" {
    run -0 --separate-stderr gqctl key create shop --allow 'publish:orders.*' -o value
    [[ "$output" =~ ^gq_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$ ]]
    [[ "$stderr" == *"not shown again"* ]]
    secret="${output##gq_????????????_}"
    run -0 gqctl key list -o json
    [[ "$output" != *"$secret"* ]]
    [ "$(grep '"shop"' <<< "$output" | field kind scopes expires_us)" = 'api ["publish:orders.*"] None' ]
    run ! grep -rqF -- "$secret" "$GOQUEUE_DATA_DIR"
}

@test "scopes: left out patterns, all, several, an end" {
    run -0 gqctl key create scoped --allow consume:orders --allow admin:orders --allow all:x:y --expires 2h -o json
    [ "$(head -n 1 <<< "${lines[-1]}" | field scopes)" = \
        '["consume:orders:*", "admin:orders:", "publish:x", "consume:x:y", "admin:x:y"]' ]
    [ "$(field expires_us <<< "${lines[-1]}")" -gt "$(field created_us <<< "${lines[-1]}")" ]
    run -0 gqctl key list -o table
    [[ "$output" == *SCOPES* && "$output" == *never* ]]
}

@test "what is no scope, name or key is a usage error" {
    run -2 gqctl key create a --allow read
    run -2 gqctl key create a --allow 'publish:a/b'
    run -2 gqctl key create a
    run -2 gqctl key create 'a/b' --allow publish
    run -2 gqctl key create a --allow publish --curve short
    run -2 gqctl key create a --node
    run -2 gqctl key create a --node --allow publish --curve "$(gqctl key curve -o value)"
    run ! grep -qx a <<< "$(gqctl key list -o value)"
}

@test "a name is used once, and again after a revocation" {
    gqctl key create once --allow publish > /dev/null
    run -1 --separate-stderr gqctl key create once --allow publish
    [[ "$stderr" == gqctl:*once* ]]
    run -0 gqctl key revoke once -o value
    [ "$output" = once ]
    gqctl key create once --allow publish > /dev/null
}

@test "revoke takes names and ids, and says what is not there" {
    gqctl key create by-name --allow publish > /dev/null
    id="$(gqctl key create by-id --allow publish -o json 2> /dev/null | field id)"
    run -4 --separate-stderr gqctl key revoke by-name nobody "$id" -o value
    [ "$output" = $'by-name\nby-id' ]
    [[ "$stderr" == *nobody* ]]
    run ! grep -q '^by-' <<< "$(gqctl key list -o value)"
}

@test "keys outlive a restart of everything" {
    gqctl key create kept --allow publish > /dev/null
    gqctl restart > /dev/null
    gqctl key list -o value | grep -qx kept
}

@test "curve prints the node's public key, the same each time, and guards the secret one" {
    run -0 gqctl key curve -o value
    [ "${#output}" = 40 ]
    [ "$(gqctl key curve -o value)" = "$output" ]
    file="$(gqctl key curve -o json | field file)"
    [ "$(stat -c %a "$file")" = 600 ]
    chmod 644 "$file"
    run -2 gqctl key curve
    chmod 600 "$file"
}

@test "a key before the first start: only for a node whose keys are kept here" {
    run -1 --separate-stderr env GOQUEUE_METAD=tcp://elsewhere:7400 gqctl --data-dir "$GQ_DIR/n2" key create a --allow publish
    [[ "$stderr" == *"tcp://elsewhere:7400"* ]]
    [ "$(grep -c . <<< "$stderr")" = 2 ]
    run ! ls "$GQ_DIR/n2/meta"
    echo 'storage: {nonsense: 1}' > "$GQ_DIR/n2/goqueue.yaml"
    run -2 gqctl --data-dir "$GQ_DIR/n2" key create a --allow publish
    run -3 gqctl --data-dir "$GQ_DIR/n3" key list
    run ! ls "$GQ_DIR/n3"
}

@test "a node's key has a CURVE key and no secret" {
    other="$(gqctl --data-dir "$GQ_DIR/other" key curve -o value)"
    run -0 --separate-stderr gqctl key create other --node --curve "$other" -o json
    [ "$(field kind scopes curve <<< "$output")" = "node [] $other" ]
    [[ "$output" != *'"key"'* ]]
    run -1 gqctl key create again --node --curve "$other"
}

@test "a node that is open to other machines wants keys, first of all to start" {
    export GOQUEUE_DATA_DIR="$GQ_DIR/public" port
    port="$("$GQ_PYTHON" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')"
    run -1 --separate-stderr env GOQUEUE_METAD_ADDR="0.0.0.0:$port" gqctl up
    [[ "$stderr" == *"gqctl key create"* ]]
    [ "$(grep -c . <<< "$stderr")" = 1 ]
    run ! gqctl status
    run -0 --separate-stderr env GOQUEUE_METAD_ADDR="0.0.0.0:$port" gqctl key create me --allow publish -o value
    [[ "$stderr" == *"no node runs on $GOQUEUE_DATA_DIR"*"not shown again"* ]]
    key="$output"
    run ! gqctl status
    GOQUEUE_METAD_ADDR="0.0.0.0:$port" gqctl up > /dev/null
    curve="$(gqctl key curve -o value)"
    unset GOQUEUE_DATA_DIR
    run -1 --separate-stderr env GOQUEUE_CURVE_SERVER_KEY="$curve" gqctl --server "127.0.0.1:$port" topic list
    [[ "$stderr" == *"API key"* ]]
    GOQUEUE_KEY="$key" GOQUEUE_CURVE_SERVER_KEY="$curve" run -0 gqctl --server "127.0.0.1:$port" topic list
    GOQUEUE_KEY="$key" GOQUEUE_CURVE_SERVER_KEY="$curve" run -1 gqctl --server "127.0.0.1:$port" topic create no
    gqctl --data-dir "$GQ_DIR/public" down
}
