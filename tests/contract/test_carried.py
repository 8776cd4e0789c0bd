"""What a fork became is brought to the sandbox that it was forked from, byte for byte, on every backend."""

from __future__ import annotations

from sandbox.base import SandboxBackend
from sandbox.types import MIB, Command, Limits, SandboxSpec
from swarm.strategies import carry

SPEC = SandboxSpec(limits=Limits(memory=128 * MIB, processes=48, disk=16 * MIB, output=8192, wall=30))
BEFORE = """
mkdir -p src folder/deep turns-not && printf 'one\\r\\n' > src/a.py && echo x > src/gone.py && echo x > folder/deep/x
echo kept > kept && ln -s kept link && echo file > turns
"""
AFTER = """
printf 'two\\n\\0' > src/a.py && chmod 775 src/a.py && rm src/gone.py && rm -r folder && echo 'a file now' > folder
rm turns && mkdir -p turns/into && echo > 'turns/into/a folder' && ln -sf /etc/passwd link && ln kept twin
echo odd > './-rf --' && mkdir -m 700 empty && head -c 300000 /dev/zero > large && chmod 4711 kept
"""


def sh(script: str) -> Command:
    return Command(argv=("sh", "-ec", script))


async def test_a_forks_work_is_brought_over_byte_for_byte(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        assert (await box.run(sh(BEFORE))).exit_code == 0
        before = await carry.index(box)
        async with box.fork() as fork:
            assert (await fork.run(sh(AFTER))).exit_code == 0
            made = await carry.change(fork, before)
            wanted = await carry.index(fork)
        await carry.apply(box, carry.Change.load(made.dump()))
        assert await carry.index(box) == wanted
