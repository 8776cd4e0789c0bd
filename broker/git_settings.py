"""The environment and the settings that every git of this room runs under, whatever else lies on the machine.

Git reads the command line's settings last, so nothing that a repository, a user or the system says outranks these. The
list follows from what was seen to fire when git touches a hostile repository: hooks, fsmonitor, filters, text
conversion, gpg, helpers, bundle URIs, replace refs, alternates, shallow files (CVE-2022-39253, CVE-2025-48385).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pydantic import SecretStr

from broker.disguises import struck

NULL = os.devnull
FALSE = "/bin/false"

# Nothing is inherited: no GIT_*, LD_*, proxy or trace variable of whoever started the broker reaches a git.
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": NULL,
    "GIT_CONFIG_GLOBAL": NULL,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": FALSE,
    "SSH_ASKPASS": FALSE,
    "GIT_SSH_COMMAND": FALSE,
    "GIT_EDITOR": FALSE,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": NULL,
    "GIT_SHALLOW_FILE": "",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
}
_SETTINGS = (
    # nothing of a repository's own runs
    f"core.hooksPath={NULL}",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    f"core.attributesFile={NULL}",
    f"core.askPass={FALSE}",
    f"core.sshCommand={FALSE}",
    f"core.editor={FALSE}",
    "core.pager=cat",
    "core.gitProxy=",
    f"gpg.program={FALSE}",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "push.gpgSign=false",
    "log.showSignature=false",
    # names and links of other systems
    "core.symlinks=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    # every object that comes in is checked; the three are faults of old clients in the history of honest repositories
    "fetch.fsckObjects=true",
    "transfer.fsckObjects=true",
    "receive.fsckObjects=true",
    "fetch.fsck.badTimezone=ignore",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "transfer.bundleURI=false",
    "fetch.writeCommitGraph=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    # transports: GIT_ALLOW_PROTOCOL, set for each run, outranks these; they hold should it ever be lost
    "protocol.allow=never",
    "protocol.file.allow=never",
    "protocol.ext.allow=never",
    "protocol.git.allow=never",
    "protocol.ssh.allow=never",
    "protocol.http.allow=never",
    "protocol.https.allow=never",
    "http.followRedirects=false",
    "http.proxy=",
    "http.sslVerify=true",
    "http.saveCookies=false",
    "http.cookieFile=",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "credential.helper=",
    "credential.useHttpPath=true",
    # a push sends what it was told to, and nothing else
    "push.default=nothing",
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "push.pushOption=",
    # no work in the background, little memory
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=1",
    "pack.indexVersion=2",
    "core.bigFileThreshold=1m",
    "core.deltaBaseCacheLimit=32m",
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    "safe.bareRepository=explicit",
    "advice.detachedHead=false",
    "advice.graftFileDeprecated=false",
)
FLAGS = tuple(part for setting in _SETTINGS for part in ("-c", setting))


def own_config(object_format: str) -> str:
    """A bare repository's own file. The settings stand here too, for a git that one of ours starts by itself."""
    version = 0 if object_format == "sha1" else 1
    lines = [f"[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = true\n"]
    if version:
        lines.append(f"[extensions]\n\tobjectformat = {object_format}\n")
    for setting in _SETTINGS:
        key, value = setting.split("=", 1)
        section, name = key.rsplit(".", 1)
        head, _, sub = section.partition(".")
        title = f'{head} "{sub}"' if sub else head
        if value and not section.startswith(("safe", "protocol")):
            lines.append(f"[{title}]\n\t{name} = {value}\n")
    return "".join(lines)


def child_environment(
    protocols: str, more: Mapping[str, str], private: Mapping[str, str | SecretStr]
) -> dict[str, str]:
    """What one run is given. ``private`` are settings that no argument list shows: only this child can read them."""
    told = {"GIT_ALLOW_PROTOCOL": protocols, **more}
    if private:
        told["GIT_CONFIG_COUNT"] = str(len(private))
    for number, (key, value) in enumerate(private.items()):
        told[f"GIT_CONFIG_KEY_{number}"] = key
        told[f"GIT_CONFIG_VALUE_{number}"] = value.get_secret_value() if isinstance(value, SecretStr) else value
    return {**ENVIRONMENT, **told}


def without_secrets(text: str, private: Mapping[str, str | SecretStr]) -> str:
    """The text with every secret of ``private`` struck out, whole or by its last word."""
    wholes = [value.get_secret_value() for value in private.values() if isinstance(value, SecretStr)]
    parts = [part for whole in wholes for part in (whole, *whole.split()[-1:])]
    return struck(text, (part for part in parts if len(part) > 3), "***")
