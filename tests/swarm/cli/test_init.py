"""`swarm init` finds real servers on loopback, writes a file that loads, and replaces nothing unasked."""

from __future__ import annotations

import json
import re
import socket
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from broker.config.template import render
from pool.testing import pretend_vllm
from swarm.cli import app
from swarm.cli.draft import Places, draft
from swarm.cli.init import places
from swarm.cli.probe import NEEDS_KEY, Answer, Server, examine, find
from swarm.config_file import load

PLACES = Places(Path("/s"), Path("/d.sock"), Path("/b.sock"))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def odd_server() -> Iterator[dict[str, object]]:
    """A server on loopback that answers every GET with what the test puts into the dict."""
    answer: dict[str, object] = {"status": 200, "body": b"{}", "headers": {}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(str(answer["status"])))
            for name, value in dict(answer["headers"]).items():  # type: ignore[call-overload]
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(bytes(answer["body"]))  # type: ignore[call-overload]

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    answer["port"] = server.server_port
    yield answer
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_living_server_is_found_with_its_models() -> None:
    async with pretend_vllm() as server:
        port = int(server.url.rsplit(":", 1)[1].removesuffix("/v1"))
        (found,) = await find([port, free_port()])
    assert found.name == f"local-{port}"
    assert found.answer.models


@pytest.mark.parametrize(
    ("status", "body", "headers", "trouble"),
    [
        (200, b"<html>", {}, "something else"),
        (200, b'{"data": []}', {}, "lists no model"),
        (200, b'{"data": "' + b"x" * 2_000_000 + b'"}', {}, "something else"),
        (401, b"", {}, NEEDS_KEY),
        (404, b"", {}, "status 404"),
        (302, b"", {"Location": "http://169.254.169.254/"}, "status 302"),
    ],
)
async def test_other_services_are_no_model_servers(
    odd_server: dict[str, object], status: int, body: bytes, headers: dict[str, str], trouble: str
) -> None:
    odd_server.update(status=status, body=body, headers=headers)
    url = f"http://127.0.0.1:{odd_server['port']}"
    (answer,) = await examine({url: None})
    assert trouble in answer.trouble
    found = await find([int(str(odd_server["port"]))])
    assert bool(found) == (trouble == NEEDS_KEY)


async def test_a_proxy_in_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{free_port()}")
    async with pretend_vllm() as server:
        port = int(server.url.rsplit(":", 1)[1].removesuffix("/v1"))
        assert await find([port])


def written(folder: Path, text: str) -> Path:
    path = folder / "swarm.toml"
    path.write_text(text)
    return path


def test_the_draft_for_two_servers_loads(tmp_path: Path) -> None:
    servers = [
        Server("vllm", Answer("http://127.0.0.1:8000", ('evil"\nmodel = "x', "two"))),
        Server("ollama", Answer("http://127.0.0.1:11434", ("small",))),
        Server("sglang", Answer("http://127.0.0.1:30000", (), NEEDS_KEY)),
    ]
    settings = load(written(tmp_path, draft(servers, PLACES)), {}).settings
    assert settings.pool.tiers == ("default", "ollama", "sglang")
    assert settings.pool.endpoints[0].model == 'evil"\nmodel = "x'
    assert settings.pool.endpoints[2].api_key_env == "SWARM_MODEL_KEY"
    assert not settings.pool.embedded.enabled


def test_the_draft_without_a_server_joins_the_embedded_model(tmp_path: Path) -> None:
    settings = load(written(tmp_path, draft([], PLACES)), {}).settings
    assert settings.pool.tiers == ("embedded",)
    assert (settings.daemon.state, settings.daemon.socket, settings.broker.socket) == PLACES


def test_every_default_in_the_draft_can_be_taken_as_it_stands(tmp_path: Path) -> None:
    plain = load(written(tmp_path, draft([], PLACES)), {}).settings
    text = re.sub(r"^# (\w+ = (?!\.\.\.))", r"\1", draft([], PLACES), flags=re.MULTILINE)
    text = re.sub(r"^# (\[.+\]+)$", r"\1", text, flags=re.MULTILINE)
    settings = load(written(tmp_path, text), {}).settings
    assert settings.sandbox == plain.sandbox
    assert settings.limits == plain.limits
    assert settings.pool.endpoints[0].name == "box-1"


def test_init_writes_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "swarm.toml"
    words = ["init", "--output", str(path), "--port", str(free_port())]
    assert app.main(words) == 0
    assert "the embedded model will serve" in capsys.readouterr().out
    first = path.read_text()
    assert app.main(words) == 3
    assert "--force" in capsys.readouterr().err
    path.write_text("mine")
    assert app.main([*words, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["embedded"] is True
    assert path.read_text() == first
    assert path.stat().st_mode & 0o777 == 0o644


def test_init_into_no_folder_is_a_plain_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["init", "-o", str(tmp_path / "none" / "swarm.toml"), "--port", str(free_port())]) == 3
    assert "No such file or directory" in capsys.readouterr().err


def test_root_and_others_have_places_of_their_own() -> None:
    assert places(0).state == Path("/var/lib/agent-swarm")
    assert places(1000).state != places(0).state


def test_init_looks_for_the_broker_where_the_broker_s_own_init_puts_it() -> None:
    written = tomllib.loads(render({}, "web"))["socket"]
    assert {str(places(0).broker), str(places(1000).broker)} == {written}
