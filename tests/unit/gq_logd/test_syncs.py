"""When syncs and checkpoints start."""

from pathlib import Path

from tests.unit.gq_logd.world import World, batch_of


def test_with_every_thread_busy_nothing_falls_due(tmp_path: Path) -> None:
    """A deadline in the past while no job can start would keep the loop from ever hearing that one has ended."""
    world = World(tmp_path, partitions=20, fsync="none")      # leaves checkpoints to be saved, nothing to be synced
    world.hold_syncs = True
    for partition in range(20):
        world.publish(batch_of(b"v"), partition=partition)
    world.now += 10
    world.turn()
    assert len(world.held) == world.config.syncs_max
    deadline = world.core.next_deadline(world.now, world.wall_us)
    assert deadline is None or deadline > world.now
    world.hold_syncs = False
    world.sync()
    world.tick(10)
    assert not any(partition.changed for partition in world.core.catalog.partitions.values())
