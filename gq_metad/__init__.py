"""The metadata daemon: which topics, partitions, daemons and producers there are.

Owns topics and their settings, partition leaders and epochs, registered daemons, producer ids, keys. Never carries messages, and
knows no groups. One voter for now; its log has term and index in every entry, so that Raft can replicate it later.

Invariants: nothing is answered before what it depends on is on the disk; `State.apply` alone changes hard state, live and at
restart; a topic id, a leader epoch and a producer's (id, epoch) are never given out twice; versions only grow; no secret of a
key is ever on the disk.

    entries   what is logged           state  what it adds up to       core    requests -> entries and replies, pure
    topics    settings of a topic      log    the file they live in    daemon  the shell
    keys      who may do what          spread who knows of a change
"""
