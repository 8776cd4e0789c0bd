"""The profile as bubblewrap's arguments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox.rules.profile import AGENT_UID, Folder, Profile


def bwrap_arguments(
    profile: Profile,
    root: Iterable[str],
    *,
    held: Mapping[str, str],
    environment: Mapping[str, str],
    masked: Iterable[str] = (),
) -> list[str]:
    """Bubblewrap's arguments up to the command.

    ``root`` are the arguments that show the system. ``held`` tells, for a writable place, where its backend keeps it
    outside; the other places become tmpfs here, which bubblewrap cannot limit in files. ``masked`` are those of the
    profile's masked files that this kernel has.
    """
    uid = str(AGENT_UID)
    # It begins in the root: a workspace that the agent shut against itself must not keep a supervisor from starting.
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", uid, "--gid", uid, "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--hostname", profile.hostname, "--clearenv"),
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        *root,
        *("--proc", "/proc", "--dev", "/dev"),
        *(part for folder in profile.folders for part in _place(folder, held.get(folder.path))),
        *(part for path in masked for part in ("--ro-bind", "/dev/null", path)),
        *("--remount-ro", "/dev", "--chdir", "/", "--remount-ro", "/"),
    ]


def _place(folder: Folder, outside: str | None) -> list[str]:
    if outside is not None:
        return ["--bind", outside, folder.path]
    return ["--perms", f"{folder.mode:04o}", "--size", str(folder.size), "--tmpfs", folder.path]
