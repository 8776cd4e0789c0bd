"""What a new process does to itself before it becomes a command."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import resource

from sandbox.inside.kernel import SET_DEATH_SIGNAL, SET_DUMPABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.inside.kernel import Kernel, Landlock


TELL = 9  # descriptor on which a session's shell tells its state; dash knows descriptors of one digit only


def become(kernel: Kernel, landlock: Landlock, pipes: Mapping[int, int]) -> None:
    """In the child: a command's own signals, limits and descriptors."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    kernel.prctl(SET_DUMPABLE, 1)  # without it the next file would not be ours
    kernel.prctl(SET_DEATH_SIGNAL, _signal.SIGKILL)
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(score, b"1000")
        os.close(score)
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for inside in (0, 1, 2):
        os.dup2(pipes[inside], inside)
    landlock.restrict()  # before its own descriptor may be covered
    if TELL in pipes:
        os.dup2(pipes[TELL], TELL)
        os.set_inheritable(TELL, True)  # where both were the same


def execute(argv: tuple[bytes, ...], env: Mapping[bytes, bytes]) -> int:
    """Replace this process as a shell would find the program; a shell's exit code where it cannot."""
    name, said, code = argv[0], "not found", 127
    places = [b""] if b"/" in name else env.get(b"PATH", b"/usr/bin:/bin").split(b":")
    for place in places:
        path = os.path.join(place, name)
        try:
            os.execve(path, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without a first line that names its shell
                os.execve(b"/bin/sh", [b"sh", path, *argv[1:]], env)
            code, said = 126, error.strerror or "cannot be run"
    os.write(2, name + f": {said}\n".encode())
    return code
