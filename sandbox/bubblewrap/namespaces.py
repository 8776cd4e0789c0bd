"""A workspace without a mount on the host: user and mount namespaces of its own, kept alive by two descriptors.

The workspace is a tmpfs in there, whose size is the disk limit that the kernel keeps. No root is needed for it. Nothing
of it is on a disk, and the kernel takes it away when this process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from sandbox.errors import SandboxUnavailableError
from sandbox.rules.profile import AGENT_UID, Profile

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACE = "/mnt"  # covered in these namespaces only
WORK = f"{PLACE}/work"
FILES = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{AGENT_UID}:{AGENT_UID}:agent:/home/agent:/bin/sh\n",
    "group": f"root:x:0:\nagent:x:{AGENT_UID}:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_PATIENCE = 20.0
_HOLD = (
    "set -e; mount -t tmpfs -o size=256k,mode=0755,nosuid,nodev keep {place}; mkdir {place}/work; "
    'for name in {names}; do printf "%s" "$1" >{place}/$name; shift; done; '
    "mount -t tmpfs -o size={size},nr_inodes={inodes},mode=0755,nosuid,nodev work {place}/work; echo ready; read _ || :"
)


@dataclass(frozen=True)
class Namespaces:
    """Descriptors of both. They are closed on exec, so no other process inherits them."""

    user: int
    mount: int

    def close(self) -> None:
        """Let go; the workspace is gone once nothing runs in there."""
        os.close(self.user)
        os.close(self.mount)


def dropped(uid: int) -> list[str]:
    """What to put before a command so that it runs as ``uid``; nothing when we are that already."""
    if uid == os.geteuid():
        return []
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--"]


async def make_namespaces(profile: Profile, uid: int) -> Namespaces:
    """Make both with an empty workspace in them. Raises SandboxUnavailableError where the kernel refuses."""
    script = _HOLD.format(place=PLACE, names=" ".join(FILES), size=profile.disk, inodes=profile.inodes)
    process = await asyncio.create_subprocess_exec(
        *dropped(uid),
        *("unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, "sh", *FILES.values()),
        env={"PATH": PATH},
        cwd="/",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    made: Namespaces | None = None
    try:
        async with asyncio.timeout(_PATIENCE):
            if process.stdout is not None and await process.stdout.readline() == b"ready\n":
                made = _opened(process.pid)
            _, said = await process.communicate(b"\n")
    except TimeoutError:
        said = f"no answer in {_PATIENCE:g} s".encode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if made is None:
        raise SandboxUnavailableError(
            f"user namespaces cannot be used ({said.decode('utf-8', 'replace').strip()[-300:]}); mend: allow them "
            "(sysctl user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns), or use Docker"
        )
    return made


def _opened(pid: int) -> Namespaces:
    user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Namespaces(user, os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
    except BaseException:
        os.close(user)
        raise
