"""Real smart HTTP with authentication: nginx in front of fcgiwrap in front of git-http-backend, all Debian's own.

One server a test session (each xdist worker its own), on loopback ports that the kernel chose, in a folder of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import trustme

from tests.forges.bare import Bare

USER, PASSWORD = "x-access-token", "canary-9d41-git-password"
_USERS = (USER, "oauth2")  # what GitHub and Gitea take a token under, and GitLab
_NEEDS = {"nginx": "nginx-light", "fcgiwrap": "fcgiwrap", "htpasswd": "apache2-utils"}
_STARTING = 20.0  # seconds

_CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 256; }}
http {{
  access_log {folder}/access.log;
  client_max_body_size 256m;
  client_body_temp_path {folder}/body;
  fastcgi_temp_path {folder}/fastcgi;
  proxy_temp_path {folder}/proxy;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    listen 127.0.0.1:{tls_port} ssl;
    ssl_certificate {folder}/tls.pem;
    ssl_certificate_key {folder}/tls.key;
    location ~ ^/moved(/.*)$ {{ return 302 http://127.0.0.1:{port}$1$is_args$args; }}
    location ~ ^/([^/]+/)+[^/]+\\.git/ {{
      auth_basic "git";
      auth_basic_user_file {folder}/htpasswd;
      fastcgi_pass unix:{folder}/fcgi.sock;
      fastcgi_read_timeout 120s;
      fastcgi_param SCRIPT_FILENAME {backend};
      fastcgi_param GIT_PROJECT_ROOT {folder}/srv;
      fastcgi_param GIT_HTTP_EXPORT_ALL "";
      fastcgi_param GIT_PROTOCOL $http_git_protocol;
      fastcgi_param PATH_INFO $uri;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
      fastcgi_param REMOTE_USER $remote_user;
      fastcgi_param REMOTE_ADDR $remote_addr;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class GitServer:
    """A running one. ``{url}/{owner}/{name}.git`` is a repository; ``{url}/moved/...`` is a redirect to it."""

    folder: Path
    url: str
    tls_url: str
    user: str
    password: str
    _numbers: Iterator[int]

    @property
    def ca_file(self) -> Path:
        """The certificate that ``tls_url`` is trusted by, and nothing else here."""
        return self.folder / "ca.pem"

    def create(self, name: str | None = None, object_format: str = "sha1") -> tuple[str, Bare]:
        """A new repository: its path below the url, without ``.git``, and the repository itself."""
        name = name or f"team/web{next(self._numbers)}"
        return name, Bare.create(self.folder / "srv" / f"{name}.git", object_format)

    def accesses(self) -> str:
        """Nginx's log: client, user, time, request line, status, size, referer, user agent."""
        return (self.folder / "access.log").read_text()


@pytest.fixture(scope="session")
def git_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    """Smart HTTP behind nginx; skips with the reason where a part is missing."""
    missing = [package for program, package in _NEEDS.items() if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install -y --no-install-recommends {' '.join(missing)}")
    with serving(tmp_path_factory.mktemp("git-server")) as server:
        yield server


@contextmanager
def serving(folder: Path) -> Iterator[GitServer]:
    """Starts the server in a folder and ends its processes, fcgiwrap's forked children included."""
    port, tls_port = _free_port(), _free_port()
    _prepare(folder, port, tls_port)
    with ExitStack() as ends:
        ends.enter_context(_running(folder, "fcgiwrap", "-c", "2", "-s", f"unix:{folder}/fcgi.sock"))
        _wait((folder / "fcgi.sock").exists, folder)
        ends.enter_context(_running(folder, "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")))
        _wait(lambda: _answers(port), folder)
        yield GitServer(folder, f"http://127.0.0.1:{port}", f"https://127.0.0.1:{tls_port}", USER, PASSWORD, count(1))


def _prepare(folder: Path, port: int, tls_port: int) -> None:
    (folder / "srv").mkdir()
    for user in _USERS:
        command = [
            "htpasswd",
            "-i",
            *([] if (folder / "htpasswd").exists() else ["-c"]),
            str(folder / "htpasswd"),
            user,
        ]
        subprocess.run(command, input=PASSWORD.encode(), check=True, capture_output=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(str(folder / "tls.pem"), append=True)
    core = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "nginx.conf").write_text(
        _CONFIG.format(folder=folder, port=port, tls_port=tls_port, backend=f"{core}/git-http-backend")
    )


@contextmanager
def _running(folder: Path, *command: str) -> Iterator[None]:
    env = {"PATH": f"{os.environ['PATH']}:/usr/sbin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # a group of its own, which the children are in too
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(ready: Callable[[], bool], folder: Path) -> None:
    until = time.monotonic() + _STARTING
    while not ready():
        if time.monotonic() > until:
            logs = "\n".join(file.read_text(errors="replace") for file in sorted(folder.glob("*.log")))
            pytest.fail(f"the git server did not start:\n{logs}")
        time.sleep(0.02)
