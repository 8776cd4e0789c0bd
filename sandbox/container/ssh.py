"""Brings a far engine's socket here by OpenSSH's own forwarding."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sandbox.container.address import Address
from sandbox.errors import SandboxLostError

_PATIENCE = 30.0  # seconds that the way may take to open
_LAST_WORDS = 0.3
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "SSH_AUTH_SOCK")
_SSH = {
    "BatchMode": "yes",  # nobody is there to be asked
    "ExitOnForwardFailure": "yes",
    "StreamLocalBindMask": "0177",
    "ConnectTimeout": "15",
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
    "ControlMaster": "no",
    "ControlPath": "none",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "LogLevel": "INFO",  # tells of far sockets that could not be opened
}
_SSH_MENDS = (
    ("Host key verification failed", "its host key is not known here: connect once by hand and check it"),
    ("REMOTE HOST IDENTIFICATION", "its host key has changed: find out why before you trust the new one"),
    ("Permission denied", "no key of this user is let in: ssh-copy-id, or load the key into the agent"),
    ("Could not resolve", "the name is not known: mend DOCKER_HOST"),
    ("Connection refused", "no ssh server listens there: start it, or mend the port in DOCKER_HOST"),
    ("timed out", "nothing answers there: is the machine up, and let through by its firewall?"),
    ("open failed", "the engine's socket is not there, or the user may not open it: add the user to its group"),
)


class SshForward:
    """OpenSSH forwards the far engine's socket to one of ours, with the keys, names and jumps of the user's own ssh."""

    def __init__(self, address: Address, environment: Mapping[str, str]) -> None:
        self.local = False
        self.told = address.told
        self._address = address
        self._environment = {name: environment[name] for name in _PASSED_ON if name in environment}
        self._opening = asyncio.Lock()
        self._folder: str | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._said = b""

    async def path(self) -> str:
        """As the protocol says."""
        async with self._opening:
            self._folder = self._folder or tempfile.mkdtemp(prefix="swarm-engine-")
            target = Path(self._folder, "engine.sock")
            if self._process is None or self._process.returncode is not None:
                await self._end()
                await asyncio.to_thread(target.unlink, missing_ok=True)
                try:
                    await self._open(target)
                except BaseException:
                    await self._end()  # half open is not open, also where whoever waited was cancelled
                    raise
            return str(target)

    async def why(self) -> str:
        """The last words of ssh, with what to do about them. They may come after the connection broke."""
        if not self._said:
            await asyncio.sleep(_LAST_WORDS)
        words = self._said.decode("utf-8", "replace").strip()
        mends = [mend for sign, mend in _SSH_MENDS if sign in words]
        return " ".join(words.split())[-400:] + (f"; mend: {mends[0]}" if mends else "")

    async def close(self) -> None:
        """End ssh and remove the folder."""
        async with self._opening:
            await self._end()
            if self._folder is not None:
                await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
                self._folder = None

    async def _open(self, target: Path) -> None:
        path = self._environment.get("PATH")
        program = shutil.which("ssh", path=path)
        if program is None:
            raise SandboxLostError(f"{self.told} needs OpenSSH; mend: apt-get install openssh-client")
        # The far socket must not outlive us, not even when we are killed.
        guard = shutil.which("setpriv", path=path)
        self._said = b""
        self._process = await asyncio.create_subprocess_exec(
            *((guard, "--pdeathsig", "TERM") if guard else ()),
            *ssh_argv(self._address, program, target),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._listening = asyncio.create_task(self._listen(self._process))
        until = asyncio.get_running_loop().time() + _PATIENCE
        while not os.path.exists(target):  # noqa: ASYNC240, PTH110 - ssh makes it without a word
            late = asyncio.get_running_loop().time() > until
            if self._process.returncode is not None or late:
                await self._end()  # all of its words are read then
                reason = await self.why() or ("it took longer than 30 s" if late else "ssh ended without a word")
                raise SandboxLostError(f"the Docker engine at {self.told} cannot be reached: {reason}")
            await asyncio.sleep(0.02)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        while process.stderr is not None and (words := await process.stderr.read(4096)):
            self._said = (self._said + words)[-4096:]

    async def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 5)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._listening is not None:
            await asyncio.gather(self._listening, return_exceptions=True)
        self._process = self._listening = None


def ssh_argv(address: Address, program: str, target: Path) -> list[str]:
    """What forwards the far socket to ``target``, and does nothing else."""
    options = [word for name, value in _SSH.items() for word in ("-o", f"{name}={value}")]
    user = ["-l", address.user] if address.user else []
    port = ["-p", str(address.port)] if address.port else []
    return [program, "-nNT", *options, "-L", f"{target}:{address.path}", *user, *port, "--", address.host]
