"""The helper process that starts bubblewrap: one small Python that forks a child per sandbox start, and does no more.

A child enters the control group, drops to the sandbox's uid, makes or enters the namespaces that hold its workspace and
becomes bubblewrap: one fork and one exec, where a chain of shell, setpriv, unshare and mount takes a dozen. Runs with
the standard library alone (`-I -S`). Requests come from the daemon over one socket, at whose end the helper ends, and
with it (by bubblewrap's die-with-parent) every sandbox. Longer than other files: the order of what a child does, from
root's rights to none, is to be read in one piece. See user_namespaces(7), mount_namespaces(7) and the kernel's
filesystems/overlayfs for why things are done in this order.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from sandbox.bubblewrap.layers import PLACE, SLOTS, Store, from_json, room_left, to_json

MOST_FDS = 8
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SET_PDEATHSIG, _SET_DUMPABLE = 1, 4
_KEEP = "size=1m,nr_inodes=512,mode=0755"
_libc = ctypes.CDLL(None, use_errno=True)


def serve(control: socket.socket) -> None:
    """Fork a child for each request until the other side is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are nobody's to wait for
    parent = os.getpid()
    while True:
        message, fds, _, _ = socket.recv_fds(control, 16, MOST_FDS)
        if not message:
            return
        try:
            if os.fork() == 0:
                _child(parent, control, fds)
        except OSError as error:  # no process left for us: this request is refused, the helper stays
            _answer(fds[1], {"error": f"no process could be started: {error.strerror}"})
        finally:
            for descriptor in fds:
                os.close(descriptor)


def _child(parent: int, control: socket.socket, fds: list[int]) -> NoReturn:
    try:
        gc.disable()  # it would touch all that is shared with the helper, and soon there is another program here
        control.close()
        os.umask(0o022)  # whatever the daemon's is
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        body, reply, *rest = fds
        _perform(body, reply, rest)
    except OSError as error:
        _answer(_asker, {"error": f"{_doing}: {error.strerror or error}"})
    except Exception as error:  # noqa: BLE001 - told to the daemon, which raises it
        _answer(_asker, {"error": f"{_doing}: {error!r}"})
    finally:
        os._exit(1)


def _perform(body: int, reply: int, fds: list[int]) -> None:
    global _asker  # noqa: PLW0603 - one child does one thing, and its errors go where that was asked
    _asker = reply
    request = json.loads(os.pread(body, os.fstat(body).st_size, 0))
    _OPERATIONS[request["do"]](request, reply, fds)


_doing, _asker = "beginning", -1


def _step(words: str) -> None:
    global _doing  # noqa: PLW0603 - one child does one thing; an error tells at which step
    _doing = words


def _sit(request: dict[str, Any], reply: int, fds: list[int]) -> None:
    """Enter a control group ahead of time and wait for what to do: the kernel takes milliseconds to let one in.

    The one descriptor is where the request will come, and its answer goes.
    """
    _enter_groups(request["groups"])
    _answer(reply, {})
    os.close(reply)
    with socket.socket(fileno=os.dup(fds[0])) as connection:
        message, given, _, _ = socket.recv_fds(connection, 16, MOST_FDS)
    if message:
        _perform(given[0], fds[0], given[1:])


def _start(request: dict[str, Any], reply: int, fds: list[int]) -> None:
    """Become bubblewrap. Descriptors: stream, errors, filter and, where the namespaces are there, user and mount."""
    stream, errors, rules, *namespaces = fds
    rules = os.open(f"/proc/self/fd/{rules}", os.O_RDONLY)  # anew: others read from the same descriptor
    _enter_groups(request["groups"])
    _limit(request["rlimits"], request["score"])
    stores = from_json(request["stores"])
    if namespaces:
        _enter(request["uid"], namespaces)
        _answer(reply, {})
    else:
        _make(request, stores)
        _answer(reply, {}, _own_namespaces())
    _step("making /tmp")
    _call(_libc.unshare, _NEWNS)
    for store in from_json(request["fresh"]):
        _tmpfs(store, store.layer(0), store.size, store.inodes, store.mode)
    _step("starting bubblewrap")
    told = _told(request["arguments"])
    for number, descriptor in enumerate((stream, stream, errors, rules, told)):
        os.dup2(descriptor, number)
        os.set_inheritable(number, True)  # noqa: FBT003 - where it was that number already
    _close_from(5)
    try:
        os.execve(request["program"], ["bwrap", "--args", "4", "--", *request["command"]], {})
    except OSError as error:
        os.write(2, f"{request['program']}: {error.strerror}".encode())
    os._exit(127)


def _told(arguments: Sequence[str]) -> int:
    """Bubblewrap's arguments as a descriptor of high number: on its command line the sandbox could read of the host."""
    told = os.memfd_create("arguments", os.MFD_CLOEXEC)
    os.write(told, b"".join(word.encode() + b"\0" for word in arguments))
    os.lseek(told, 0, os.SEEK_SET)
    return fcntl.fcntl(told, fcntl.F_DUPFD_CLOEXEC, 10)


def _fork(request: dict[str, Any], reply: int, fds: list[int]) -> None:
    """Freeze the stores of these namespaces and make a namespace for the fork. Nothing may run in them meanwhile.

    Root mounts the layers itself: only then the kernel can rename a folder that lies in a frozen one.
    """
    now, uid = from_json(request["stores"]), request["uid"]
    owner = uid if os.geteuid() == 0 else None
    if any(store.deep for store in now):
        _enter_groups(request["groups"])  # a copy counts as the sandbox's own memory
    if owner is None:
        _enter(uid, fds)
    else:
        _change_root(fds[1])
    try:
        now = _flattened(now, owner, fds)
        stores = tuple(_freeze(store, owner) for store in now)
        if owner is None:
            [mount] = _new_namespace(stores)
        else:
            [mount] = _within(uid, fds, lambda: _new_namespace(stores))
            _change_root(mount)
        for store in stores:
            _grow(store, owner)
    except OSError as error:
        for store in now:
            with contextlib.suppress(OSError):
                _mount("none", store.layer(store.slot), "", _REMOUNT | _NOSUID | _NODEV, "")
        _answer(reply, {"error": f"{_doing}: {error.strerror or error}", "stores": to_json(now)})
        os._exit(1)
    _answer(reply, {"stores": to_json(stores)}, (mount,))
    os._exit(0)


def _new_namespace(stores: tuple[Store, ...]) -> tuple[int]:
    """A copy of this mount namespace without the layers that are written to here."""
    _step("making the fork's mounts")
    _call(_libc.unshare, _NEWNS)
    for store in stores:
        _unmount(store)
    user, mount = _own_namespaces()
    os.close(user)
    return (mount,)


def _within(uid: int, fds: Sequence[int], act: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """What ``act`` does and returns in a child that entered both namespaces as the sandbox's user. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            _enter(uid, fds)
            _answer(theirs.fileno(), {}, act())
        except OSError as error:
            _answer(theirs.fileno(), {"error": error.strerror or str(error), "doing": _doing})
        finally:
            os._exit(0)
    with ours:
        theirs.close()
        said, got, _, _ = socket.recv_fds(ours, 65536, MOST_FDS)
    os.waitpid(pid, 0)
    words = json.loads(said) if said else {"error": "it was killed", "doing": "acting inside"}
    if "error" in words:
        _step(words["doing"])
        raise OSError(0, words["error"])
    return tuple(got)


def _probe(request: dict[str, Any], reply: int, fds: list[int]) -> None:  # noqa: ARG001 - it needs no descriptor
    """Whether the namespaces can be made."""
    _make(request, from_json(request["stores"]))
    _answer(reply, {})
    os._exit(0)


def _overlay(request: dict[str, Any], reply: int, fds: list[int]) -> None:  # noqa: ARG001 - it needs no descriptor
    """Why layers cannot be used here, null where they can, and whether a folder of a frozen one can be renamed."""
    stores = from_json(request["stores"])
    owner = request["uid"] if os.geteuid() == 0 else None
    if owner is None:
        _make(request, stores)
    else:
        _call(_libc.unshare, _NEWNS)
        _furnish(request)
        for store in stores:
            _tmpfs(store, store.layer(0), store.size, store.inodes, store.mode)
    try:
        renames = all(_try_overlay(store, owner) for store in stores)
    except OSError as error:
        _answer(reply, {"overlay": f"{_doing}: {error.strerror}", "renames": False})
    else:
        _answer(reply, {"overlay": None, "renames": renames})
    os._exit(0)


def _try_overlay(store: Store, owner: int | None) -> bool:
    """Delete a folder of the frozen layer and make it anew: whiteouts and opaque folders have to work."""
    os.makedirs(store.shown + "/folder/below")
    os.mkdir(store.shown + "/other")
    shown = _freeze(store, owner).shown
    _step("deleting in an overlay")
    os.rmdir(shown + "/folder/below")
    os.rmdir(shown + "/folder")
    os.mkdir(shown + "/folder")
    if os.listdir(shown + "/folder"):
        raise OSError(0, "what was deleted comes back (tmpfs keeps no user.* attributes; Linux 6.6 and later do)")
    try:
        os.rename(shown + "/other", shown + "/renamed")
    except OSError:
        return False
    return True


_OPERATIONS: dict[str, Callable[[dict[str, Any], int, list[int]], None]] = {
    "sit": _sit,
    "start": _start,
    "fork": _fork,
    "probe": _probe,
    "overlay": _overlay,
}


def _enter_groups(entrances: Sequence[str]) -> None:
    _step("entering the control group")
    for path in entrances:
        with open(path, "w", encoding="ascii") as file:
            file.write("0")


def _limit(limits: dict[str, int], score: int) -> None:
    _step("setting limits")
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (value, value))


def _drop(uid: int) -> None:
    _step(f"becoming user {uid}")
    if os.geteuid() != uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)  # the kernel forgot both when the user changed
        _prctl(_SET_DUMPABLE, 1)  # else its files in /proc were root's, and no user namespace could be mapped


def _change_root(mount: int) -> None:
    """Into another mount namespace, user and rights as they are."""
    _step("entering the sandbox's mounts")
    _call(_libc.setns, mount, _NEWNS)
    os.chdir("/")


def _enter(uid: int, namespaces: Sequence[int]) -> None:
    _drop(uid)
    _step("entering the sandbox's namespaces")
    for descriptor in namespaces:
        _call(_libc.setns, descriptor, 0)
    os.chdir("/")


def _make(request: dict[str, Any], stores: tuple[Store, ...]) -> None:
    """New user and mount namespaces with everything in them. What only root can reach is bound before it drops."""
    uid, gid = request["uid"], request["uid"]
    privileged = os.geteuid() == 0
    if privileged:
        _call(_libc.unshare, _NEWNS)
        _furnish(request)
    else:
        gid = os.getegid()
    _drop(uid)
    _step("making user namespaces")
    _call(_libc.unshare, _NEWUSER | _NEWNS)
    for name, words in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(words)
    if not privileged:
        _furnish(request)
    _step("making the workspace")
    for store in stores:
        _tmpfs(store, store.layer(0), store.size, store.inodes, store.mode)


def _furnish(request: dict[str, Any]) -> None:
    """A small tmpfs with the places of mounts, the few files of /etc, and what is shown read-only from the host."""
    _step("making mounts in a user namespace")
    _mount("none", "/", "", _REC | _PRIVATE, "")
    held = {target: os.open(source, os.O_PATH) for target, source in request["binds"].items()}
    _mount("keep", PLACE, "tmpfs", _NOSUID | _NODEV, _KEEP)
    for place, slots in [(store["name"], SLOTS) for store in request["stores"]] + [
        (store["name"], 1) for store in request.get("fresh", ())
    ]:
        os.mkdir(f"{PLACE}/{place}")
        for slot in range(slots):
            os.mkdir(f"{PLACE}/{place}/{slot}")
    for name, text in request["files"].items():
        with open(f"{PLACE}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    for target, descriptor in held.items():
        _step(f"showing {request['binds'][target]}")
        _bind(descriptor, f"{PLACE}/{target}")


def _bind(descriptor: int, target: str) -> None:
    """Recursive, as the kernel wants it of whoever did not make the mounts below."""
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    _mount(f"/proc/self/fd/{descriptor}", target, "", _BIND | _REC, "")
    os.close(descriptor)


def _flattened(stores: tuple[Store, ...], owner: int | None, fds: Sequence[int]) -> tuple[Store, ...]:
    """The stores, those with a deep stack copied into one layer. Where that fails all is as it was."""
    flat = tuple(store.flattened() if store.deep and not _untouched(store) else store for store in stores)
    changed = [(old, new) for old, new in zip(stores, flat, strict=True) if old != new]
    try:
        for old, new in changed:
            if owner is None:
                _copy(old, new)
            else:
                _within(owner, fds, partial(_copy, old, new))  # a hostile tree is its own user's to copy
    except OSError:
        for _, new in changed:
            with contextlib.suppress(OSError):
                _call(_libc.umount2, new.shown.encode(), _DETACH)
        raise
    for old, _ in changed:
        _unmount(old)
        for slot in old.frozen:
            _call(_libc.umount2, old.layer(slot).encode(), _DETACH)
    return flat


def _freeze(store: Store, owner: int | None) -> Store:
    """What both sides of a fork start from: the store with an empty layer on top, which was put on here."""
    if store.frozen and _untouched(store):
        return store
    _step("freezing the workspace")
    _mount("none", store.layer(store.slot), "", _REMOUNT | _RDONLY | _NOSUID | _NODEV, "")
    parted = store.parted()
    _grow(parted, owner)
    return parted


def _untouched(store: Store) -> bool:
    above = os.stat(f"{store.layer(store.slot)}/up")
    return not os.listdir(f"{store.layer(store.slot)}/up") and above.st_mode == os.stat(store.lowers[0]).st_mode


def _grow(store: Store, owner: int | None) -> None:
    """Mount a new layer at the store's slot, with what the frozen ones leave of the limits."""
    _step("adding a layer to the workspace")
    here = store.layer(store.slot)
    used = [os.statvfs(store.layer(slot)) for slot in store.frozen]
    size, inodes = room_left(
        store,
        sum((of.f_blocks - of.f_bfree) * of.f_frsize for of in used),
        sum(of.f_files - of.f_ffree for of in used),
    )
    _tmpfs(store, here, size, inodes, 0o755)
    for name in ("up", "wk", "top"):
        os.mkdir(f"{here}/{name}")
    os.chmod(f"{here}/up", stat.S_IMODE(os.stat(store.lowers[0]).st_mode))
    how = "userxattr"
    if owner is not None:
        os.chown(f"{here}/up", owner, owner)
        how = "redirect_dir=on"
    options = f"lowerdir={':'.join(store.lowers)},upperdir={here}/up,workdir={here}/wk,{how}"
    _mount("overlay", store.shown, "overlay", _NOSUID | _NODEV, options)


def _copy(old: Store, new: Store) -> tuple[()]:
    """All that the old layers show, into one new layer."""
    _step("copying the workspace's layers into one")
    _tmpfs(new, new.shown, new.size, new.inodes, stat.S_IMODE(os.stat(old.shown).st_mode))
    argv = ["cp", "-a", "--sparse=always", "--", old.shown + "/.", new.shown + "/"]
    process = subprocess.Popen(
        argv, env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with contextlib.suppress(OSError), open(f"/proc/{process.pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # where memory does not suffice it goes, not we, who have to clear up after it
    _, said = process.communicate()
    if process.returncode:
        raise OSError(0, said.decode("utf-8", "replace").strip()[-300:] or "it was killed")
    return ()


def _unmount(store: Store) -> None:
    if store.frozen:
        _call(_libc.umount2, store.shown.encode(), _DETACH)
    _call(_libc.umount2, store.layer(store.slot).encode(), _DETACH)


def _tmpfs(store: Store, target: str, size: int, inodes: int, mode: int) -> None:
    flags = _NOSUID | _NODEV | (0 if store.executable else _NOEXEC)
    _mount("tmpfs", target, "tmpfs", flags, f"size={size},nr_inodes={inodes},mode={mode:04o}")


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    words = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None)
    _call(_libc.mount, *words)


def _own_namespaces() -> tuple[int, int]:
    flags = os.O_RDONLY | os.O_CLOEXEC
    return os.open("/proc/self/ns/user", flags), os.open("/proc/self/ns/mnt", flags)


def _prctl(option: int, value: int) -> None:
    _call(_libc.prctl, option, ctypes.c_ulong(value), 0, 0, 0)


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _close_from(first: int) -> None:
    os.closerange(first, 1 << 20)


def _answer(reply: int, words: dict[str, Any], fds: Sequence[int] = ()) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(reply)) as connection:
        socket.send_fds(connection, [json.dumps(words).encode()], fds)


def main() -> None:
    """Serve the socket that standard input is."""
    os.chdir("/")
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as control:
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1):
            os.dup2(null, number)
        serve(control)
    sys.exit(0)
