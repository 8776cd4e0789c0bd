"""Git over smart HTTP to all remote forges: fetch of one branch, push of one branch, both read again and compared.

The credential is in the environment of that one child alone: never argv, never an address, never a file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from broker.errors import ForgeError, GitError
from broker.forge.rest.pace import Answered, Pace
from broker.forge.rest.problems import Reason, clean, of_push
from broker.gitdir import GitDir, Limits
from broker.scope import Lend, Scope
from broker.words.branch import is_branch_name

_TRANSFER = Limits(seconds=600.0, cpu=600, memory=8 << 30)
_PUSHING = 2 << 30  # bytes of memory: what is sent is small, and what a server tells before it is held in memory
_LOOK = Limits(seconds=60.0, cpu=30, memory=1 << 30, output=4 << 20)
_PUSH = ("--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--signed=no", "--no-force")
_FETCH = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
_NOT_AS_EXPECTED = ("stale info", "fetch first", "non-fast-forward", "already exists", "cannot lock ref")
_MOST_SAID = 64 * 1024


@dataclass(frozen=True)
class Remote:
    """Where git reaches the repository. ``user`` goes with the token; ``ca_file`` instead of the usual trust.

    ``transfer`` limits a fetch or push, ``look`` the reading of a ref.
    """

    address: str
    user: str
    ca_file: Path | None = None
    transfer: Limits = _TRANSFER
    look: Limits = _LOOK

    @property
    def origin(self) -> str:
        """Scheme, host and port: what the credential is bound to."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}/"

    def settings(self, token: SecretStr | None) -> Mapping[str, str | SecretStr]:
        """What the one child is told of it, for this host alone."""
        told: dict[str, str | SecretStr] = {}
        if self.ca_file is not None:
            told[f"http.{self.origin}.sslCAInfo"] = str(self.ca_file)
        if token is not None:
            pair = base64.b64encode(f"{self.user}:{token.get_secret_value()}".encode()).decode()
            told[f"http.{self.origin}.extraHeader"] = SecretStr(f"Authorization: Basic {pair}")
        return told


class Transport:
    """One repository's git. Blocking. Raises ForgeError; a remote's words in it are cleaned."""

    def __init__(
        self, remote: Remote, lend: Lend, *, redact: Callable[[str], str] = str, pace: Pace | None = None
    ) -> None:
        self._remote, self._lend, self._redact, self._pace = remote, lend, redact, pace
        self._protocol = urlsplit(remote.address).scheme

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Brings the branch with its history, also one that was rewound; None if there is no such branch."""
        _require_plain(branch)
        with self._lend(Scope.READ) as token:
            told = self._remote.settings(token)
            if self._read(into, branch, told) is None:
                return None
            refs = f"+refs/heads/{branch}:refs/heads/{branch}"
            try:
                into.run(
                    "fetch",
                    *_FETCH,
                    "--",
                    self._address,
                    refs,
                    limits=self._remote.transfer,
                    protocols=self._protocol,
                    private=told,
                )
            except GitError as error:
                raise self._failed(f"branch {branch} could not be fetched", str(error)) from None
        return into.commit_of(f"refs/heads/{branch}")

    def push(self, source: GitDir, commit: str, branch: str, expected: str | None = None) -> bool:
        """Creates the branch, or moves it forward from exactly ``expected``; then reads it again and compares.

        False if it is not as expected. A lease alone would let git throw commits away, so that the new commit holds
        the expected one is made sure here.
        """
        _require_plain(branch)
        if expected is not None and not source.succeeds("merge-base", "--is-ancestor", expected, commit):
            raise ForgeError(f"the commit for {branch} is not built on what the branch holds", reason=Reason.CONFLICT)
        with self._lend(Scope.PUSH) as token:
            told = self._remote.settings(token)
            said, failed = self._sent(source, commit, branch, expected, told)
            refusal = (
                None if failed is None else self._failed(f"branch {branch} could not be pushed", f"{said}\n{failed}")
            )
            now = self._after(source, branch, told, refusal)
        if now == commit:
            return True
        if refusal is None:
            raise ForgeError(f"the branch {branch} is not on the commit that was pushed", reason=Reason.CONFLICT)
        if now != expected or any(word in said for word in _NOT_AS_EXPECTED):
            return False
        raise refusal

    def _sent(
        self, source: GitDir, commit: str, branch: str, expected: str | None, told: Mapping[str, str | SecretStr]
    ) -> tuple[str, GitError | None]:
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{expected or ''}"  # an empty expectation: the ref must not exist
        said = bytearray()
        output = source.stream(
            "push",
            *_PUSH,
            lease,
            "--",
            self._address,
            f"{commit}:{ref}",
            limits=replace(self._remote.transfer, memory=min(self._remote.transfer.memory, _PUSHING)),
            protocols=self._protocol,
            private=told,
        )
        try:
            for chunk in output:
                said += chunk[: _MOST_SAID - len(said)]
        except GitError as error:
            return _rejection(said.decode(errors="replace")), error
        return "", None

    def _after(
        self, source: GitDir, branch: str, told: Mapping[str, str | SecretStr], refusal: ForgeError | None
    ) -> str | None:
        try:
            return self._read(source, branch, told)
        except ForgeError as error:
            unread = refusal or error  # what was said first is nearer to the cause
            unread.uncertain = refusal is None or refusal.reason in {Reason.UNREACHABLE, Reason.BROKEN}
            raise unread from None

    def object_format(self, at: GitDir) -> str | None:
        """sha1 or sha256, as the length of its ids tells; None while it is empty."""
        with self._lend(Scope.READ) as token:
            lines = self._listed(at, "HEAD", self._remote.settings(token))
        return {40: "sha1", 64: "sha256"}.get(len(lines[0].split("\t")[0])) if lines else None

    def _read(self, at: GitDir, branch: str, told: Mapping[str, str | SecretStr]) -> str | None:
        ref = f"refs/heads/{branch}"
        for line in self._listed(at, ref, told):
            oid, _, name = line.partition("\t")
            if name == ref:  # ls-remote matches tails of names too
                return oid
        return None

    def _listed(self, at: GitDir, pattern: str, told: Mapping[str, str | SecretStr]) -> list[str]:
        try:
            output = at.run(
                "ls-remote",
                "--quiet",
                "--",
                self._address,
                pattern,
                limits=self._remote.look,
                protocols=self._protocol,
                private=told,
            )
        except GitError as error:
            raise self._failed("the repository could not be read", str(error)) from None
        return output.decode(errors="replace").splitlines()

    @property
    def _address(self) -> str:
        return f"{self._remote.address}.git"

    def _failed(self, doing: str, said: str) -> ForgeError:
        problem = of_push(self._redact(said), doing)
        if problem.reason is Reason.LIMIT and self._pace is not None:
            self._pace.after(
                Answered(429, {})
            )  # git tells no Retry-After, so that the usual wait holds for the API too
            return self._pace.refused()
        return problem.error()


def _require_plain(branch: str) -> None:
    """A name with a colon would be another ref; names are judged where they arise, and here before they leave."""
    if not is_branch_name(branch):
        raise ForgeError(f"{clean(branch, 80)} is no branch that is fetched or pushed")


def _rejection(porcelain: str) -> str:
    """What stands behind the ref that was turned away; see git-push(1), "Output"."""
    for line in porcelain.splitlines():
        with suppress(ValueError):
            flag, _, summary = line.split("\t", 2)
            if flag == "!":
                return summary  # whole: secrets are struck before anything is cut
    return ""
