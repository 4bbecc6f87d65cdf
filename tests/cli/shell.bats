#!/usr/bin/env bats
# completion and manual.

load helper

@test "completion scripts for bash, zsh and fish" {
    for shell in bash zsh fish; do
        run -0 gqctl completion "$shell"
        [[ "$output" == *_GQCTL_COMPLETE=${shell}_complete* ]]
    done
    gqctl completion bash | bash -n
    run -2 gqctl completion tcsh
}

@test "commands and options are completed" {
    run -0 env _GQCTL_COMPLETE=bash_complete COMP_WORDS="gqctl top" COMP_CWORD=1 gqctl
    [[ "$output" == *topic* ]]
    run -0 env _GQCTL_COMPLETE=bash_complete COMP_WORDS="gqctl consume --vis" COMP_CWORD=2 gqctl
    [[ "$output" == *--visibility* ]]
}

@test "a man page for every command, which man can read" {
    folder="$BATS_TEST_TMPDIR/man 1"
    run -0 gqctl manual "$folder" -o value
    [ "$(wc -l <<< "$output")" -gt 25 ]
    [ -s "$folder/gqctl.1" ]
    [ -s "$folder/gqctl-topic-create.1" ]
    grep -q -- 'key\\-separator' "$folder/gqctl-publish.1"
    if command -v man > /dev/null && man --warnings -l "$folder/gqctl-publish.1" > "$BATS_TEST_TMPDIR/out" 2> "$BATS_TEST_TMPDIR/err"; then
        [ ! -s "$BATS_TEST_TMPDIR/err" ]
    fi
}

@test "the version" {
    run -0 gqctl --version
    [[ "$output" =~ ^gqctl\ [0-9]+\.[0-9]+ ]]
}
