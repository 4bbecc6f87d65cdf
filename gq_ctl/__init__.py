"""gqctl: GoQueue from the shell.

Owns the conventions a script relies on: data on stdout and nothing else there, talk on stderr, exit codes, the spelling of
durations, sizes, times and positions, and the forms of output. One file a command family; `app` knows them all without importing
one that is not asked for. `log dump` and `log verify` read files alone.
Never speaks the wire protocol but for STATUS (see `line`): everything else goes through the public face of gq_client. Never
keeps state of its own.
Invariants: a message is acked only after its bytes were handed to stdout; what could not be done is named on stderr in one line
that says what to do, and the exit code is not 0.
"""
