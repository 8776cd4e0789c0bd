"""`swarm pool status, doctor, explain, add, drain, admit, remove` as a person calls them."""

from __future__ import annotations

import asyncio
import json
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pool.config import EndpointConfig, GatewayConfig, PoolConfig
from pool.errors import NoEndpointError
from pool.gateway.service import Service
from pool.gateway.serving import listening
from pool.router import Pool
from pool.testing import pretend_vllm
from pool.types import EndpointStatus, Trait
from swarm.cli.pool.live import absent, doubled
from swarm.cli.pool.status import _judge, abilities, row

pytestmark = pytest.mark.slow

HEAD = '[daemon]\nstate = "s"\nsocket = "d.sock"\n[broker]\nsocket = "b.sock"\n'


def configured(folder: Path, url: str, more: str = "") -> None:
    (folder / "swarm.toml").write_text(f'{HEAD}[[pool.endpoints]]\nname = "box"\nurl = "{url}"\n{more}')


def one(**more: object) -> EndpointStatus:
    return EndpointStatus.model_validate({"name": "a", "tier": "t", "url": "u", "state": "up", "phase": "busy"} | more)


async def test_status_tells_life_load_and_abilities_with_their_flags(swarm, tmp_path: Path) -> None:
    async with pretend_vllm(details=False) as server:
        configured(tmp_path, server.url, 'api_key = "s3cret"\n')
        ran = await asyncio.to_thread(swarm, "pool", "status", "--verbose", cwd=tmp_path)
        assert ran.code == 0, ran.err
        head, line, *rest = ran.out.splitlines()
        assert {"STATE", "KV", "CAN"} <= set(head.split())
        assert {"up", "idle", "8192", "+tools", "-cache", "?prio"} <= set(line.split())
        said = "\n".join(rest)
        assert "enable:  --enable-prompt-tokens-details" in said
        assert "enable:  --scheduling-policy priority" in said
        assert "s3cret" not in ran.out + ran.err
        told = json.loads((await asyncio.to_thread(swarm, "pool", "status", "--json", cwd=tmp_path)).out)
    (seen,) = told["endpoints"]
    assert (seen["phase"], seen["version"]) == ("idle", "0.32.0+pretend")


def test_busy_wedged_dead_and_drained_look_different() -> None:
    states = {row(one(state=state, phase=phase))[2] for state, phase in
              (("up", "busy"), ("suspect", "wedged"), ("down", "dead"), ("up", "asleep"))}  # fmt: skip
    assert states == {"up busy", "suspect wedged", "down dead", "up asleep"}
    assert row(one(draining=True, cooling=4.2))[2] == "up busy draining cooling 4s"


def test_unknown_is_a_question_mark_and_never_a_zero() -> None:
    shown = row(one())
    assert shown[4] == "?"
    assert shown[6] == "?/?"
    assert (shown[7], shown[8]) == ("?", "?")
    assert row(one(running=0, waiting=0, kv_usage=0.0))[6:8] == ("0/0", "0%")


def test_foreign_words_are_cleaned() -> None:
    evil = Trait(verdict="no", evidence="\x1b]0;x\x07call")
    assert "\x1b" not in "".join(abilities(one(traits={"tools": evil}, models=[{"id": "\x1b[2Jm"}])))


def test_tier_whose_only_server_is_wedged_or_asleep_has_none_alive() -> None:
    for phase, state in (("wedged", "suspect"), ("asleep", "up"), ("dead", "down")):
        with pytest.raises(NoEndpointError, match="alive in: t"):
            _judge(("t",), (one(phase=phase, state=state),), started_elsewhere=None)
    _judge(("t",), (one(phase="silent", state="suspect"),), started_elsewhere=None)


async def test_doctor_examines_any_server_and_its_exit_code_tells(swarm, tmp_path: Path) -> None:
    async with pretend_vllm(tools="refused", window=1000) as server:
        ran = await asyncio.to_thread(swarm, "pool", "doctor", "--quick", server.url, cwd=tmp_path)
    assert ran.code == 1
    assert "fail  endpoint server-1: a window of 1000 tokens" in ran.out
    assert "mend: --max-model-len" in ran.out
    assert "why:" in ran.out


async def test_doctor_finds_no_fault_in_a_good_server(swarm, tmp_path: Path) -> None:
    async with pretend_vllm(window=32768) as server:
        configured(tmp_path, server.url, 'scheduling = "priority"\n')
        ran = await asyncio.to_thread(swarm, "pool", "doctor", "--quick", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.out
    assert all(finding["level"] != "fail" for finding in json.loads(ran.out))


EMBEDDED = f"{HEAD}[pool.embedded]\nenabled = true\n"


def test_status_of_an_embedded_model_that_nobody_runs_says_who_starts_it(swarm, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(EMBEDDED)
    ran = swarm("pool", "status", cwd=tmp_path)
    assert ran.code == 8
    assert ran.out == "no model server is in the pool now\n"
    assert 'the embedded model (tier "embedded") is not started: swarm pool serve or swarm daemon starts it' in ran.err
    told = json.loads(swarm("pool", "status", "--json", cwd=tmp_path).out)
    assert told == {"seen_from": "here", "endpoints": [], "not_started": ["embedded"]}


@pytest.mark.parametrize("weights", ["", 'weights = "none.gguf"\n'])
def test_doctor_knows_of_the_embedded_model(swarm, tmp_path: Path, weights: str) -> None:
    if not weights:
        weights = 'weights = "some.gguf"\n'
        (tmp_path / "some.gguf").write_bytes(b"GGUF")
    (tmp_path / "swarm.toml").write_text(EMBEDDED + weights)
    ran = swarm("pool", "doctor", "--json", cwd=tmp_path)
    (finding,) = json.loads(ran.out)
    assert finding["subject"] == "embedded model"
    good = "some" in weights and find_spec("xllamacpp") is not None
    assert (ran.code, finding["level"], bool(finding["mend"])) == ((0, "ok", False) if good else (1, "fail", True))


def test_an_endpoint_named_as_the_embedded_model_is_refused_beside_it(swarm, tmp_path: Path) -> None:
    clash = '[[pool.endpoints]]\nname = "embedded"\nurl = "http://127.0.0.1:9"\n'
    (tmp_path / "swarm.toml").write_text(EMBEDDED + clash)
    ran = swarm("pool", "status", cwd=tmp_path)
    assert ran.code == 3
    assert "line 9: pool.endpoints[0].name: " in ran.err
    assert "[pool.embedded] enabled = true" in ran.err
    assert "give this endpoint another name, or set pool.embedded.enabled = false" in ran.err
    (tmp_path / "swarm.toml").write_text(HEAD + clash)
    assert swarm("config", "check", cwd=tmp_path).code == 0  # alone it is a name like any other


def test_a_file_about_the_pool_alone_is_enough_for_its_commands(swarm, tmp_path: Path) -> None:
    """The file that README.md shows."""
    text = (Path(__file__).parents[3] / "README.md").read_text()
    shown = text.partition("```toml\n[pool.gateway]")[2].partition("```")[0]
    assert shown
    (tmp_path / "swarm.toml").write_text("[pool.gateway]" + shown.replace("10.0.0.2:8000", "127.0.0.1:9"))
    ran = swarm("pool", "bench", "--tier", "nosuch", cwd=tmp_path)
    assert "--tier takes one of: quick, strong" in ran.err
    ran = swarm("config", "check", "--strict", cwd=tmp_path)
    assert ran.code == 0, ran.out  # a warning about the folders of a daemon that is not spoken of would be a fault
    ran = swarm("pool", "explain", "some-request", cwd=tmp_path)
    assert ran.code == 4
    assert f"no gateway answers at {tmp_path / 'pool.sock'}" in ran.err
    assert "swarm pool serve" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--endpoint", "{}"),
        ("doctor", "{}"),
        ("bench", "--url", "{}"),
        ("add", "box", "{}"),
    ],
)
@pytest.mark.parametrize("url", ["localhost:8000", "http://h:port", "http://h/v1?x=1", "me:s3cret@h"])
def test_a_wrong_address_reads_the_same_wherever_it_is_given(swarm, words: tuple[str, ...], url: str) -> None:
    ran = swarm("pool", *(word.format(url) for word in words))
    assert ran.code == 3
    assert ran.err.startswith("error: url: ")
    assert "mend: " in ran.err
    for alien in ("Value error", "pydantic", "Traceback", "s3cret"):
        assert alien not in ran.err


def test_doctor_says_what_is_no_address(swarm, tmp_path: Path) -> None:
    ran = swarm("pool", "doctor", "ftp://x", cwd=tmp_path)
    assert ran.code == 3
    assert "is no http:// or https:// address" in ran.err
    assert "Value error" not in ran.err


def test_explain_shows_who_was_left_out_and_what_came_of_it(swarm) -> None:
    ran = swarm("pool", "explain", "r-1")
    assert ran.code == 0, ran.err
    assert "went to box" in ran.out
    assert "left out: its window of 4096 tokens is too small" in ran.out
    assert "foreseen 0.750 s, came after 0.800 s" in ran.out
    assert "foreseen 640, told 512" in ran.out
    told = json.loads(swarm("pool", "explain", "r-1", "--json").out)
    assert told["rows"][0]["seconds"] == {"queue": 0.5, "prefill": 0.25}
    lost = swarm("pool", "explain", "r-2")
    assert lost.code == 3
    assert "not remembered" in lost.err
    assert "an answer tells its id in the header X-Request-Id" in lost.err
    assert "is no request's id" in swarm("pool", "explain", "../status").err


def test_a_socket_alone_leads_to_a_running_pool(swarm, installation, tmp_path: Path) -> None:
    socket = str(tmp_path / "none.sock")
    for words in (("status",), ("explain", "r-1"), ("remove", "b")):
        ran = swarm("pool", *words, "--socket", socket, cwd=tmp_path)
        assert ran.code == 4
        assert f"no gateway answers at {socket}" in ran.err
    both = swarm("pool", "status", "--socket", socket, "--config", str(installation.config))
    assert (both.code, "give one of the two" in both.err) == (3, True)


def test_names_and_tiers_that_would_mean_something_else_are_refused(swarm) -> None:
    for verb in ("drain", "admit", "remove"):
        ran = swarm("pool", verb, "../status")
        assert (ran.code, "is no endpoint's name" in ran.err) == (3, True)
    for words in (("add", "b", "http://h"), ("up", "agents", "--model", "qwen3-8b"), ("up", "--embedded")):
        ran = swarm("pool", *words, "--tier", "auto")
        assert (ran.code, "is the one that a policy chooses" in ran.err) == (3, True)


async def test_a_key_from_the_environment_opens_a_server_named_by_its_address(swarm, tmp_path: Path) -> None:
    async with pretend_vllm(window=32768) as server:
        words = ("pool", "doctor", "--quick", "--key-env", "SWARM_BOX_KEY", server.url)
        ran = await asyncio.to_thread(swarm, *words, cwd=tmp_path, SWARM_BOX_KEY="s3cret")
    assert ran.code == 0, ran.out
    assert {one.headers.get("authorization") for one in server.requests} == {"Bearer s3cret"}
    assert "s3cret" not in ran.out + ran.err
    for words in (("doctor",), ("serve",), ("bench", "--tier", "fast")):
        ran = swarm("pool", *words, "--key-env", "SWARM_BOX_KEY")
        assert (ran.code, "which is missing" in ran.err) == (3, True)


def test_refusals_of_the_daemon_reach_the_person_in_words(swarm) -> None:
    for words in (("add", "box", "http://h"), ("drain", "x"), ("admit", "x"), ("remove", "x")):
        ran = swarm("pool", *words)
        assert ran.code == 3, ran.err
        assert "endpoint" in ran.err
        assert "mend: " in ran.err


def test_nothing_is_changed_without_a_daemon_and_a_wrong_setting_is_named(swarm, tmp_path: Path) -> None:
    configured(tmp_path, "http://127.0.0.1:9")
    ran = swarm("pool", "drain", "box", cwd=tmp_path)
    assert ran.code == 4
    assert "swarm daemon" in ran.err
    ran = swarm("pool", "add", "b", "http://h", "--tools", "maybe", cwd=tmp_path)
    assert (ran.code, "tools: must be one of" in ran.err) == (3, True)
    ran = swarm("pool", "add", "b", "http://h", "--key-env", "SWARM_NO_SUCH_KEY", cwd=tmp_path)
    assert "SWARM_NO_SUCH_KEY is not set" in ran.err


def test_status_warns_of_servers_that_cannot_be_asked() -> None:
    dead = one(name="x", state="down", phase="dead", last_error="endpoint x: nobody listens at http://h")
    keyless = one(name="y", misfit="endpoint y: it wants another key")
    said = list(absent([one(), dead, keyless]))
    assert ["nobody listens" in said[0], "another key" in said[1], len(said)] == [True, True, 2]


def test_a_pool_command_without_a_swarm_toml_names_the_socket(swarm, tmp_path: Path) -> None:
    for words in (("status",), ("explain", "req-1"), ("drain", "a")):
        ran = swarm("pool", *words, cwd=tmp_path)
        assert ran.code == 3
        assert "--socket" in ran.err


async def test_members_of_a_running_gateway_are_told_as_they_are(swarm, tmp_path: Path, short: Path) -> None:
    """A dead one is warned of, a new tier named, a drain seen, and the exit code is by the tiers that are there."""
    async with (
        pretend_vllm() as server,
        Pool(gateway_for(server.url, short)) as pool,
        listening(Service.of(pool, {})),
    ):
        await pool.ready("t")

        async def said(*words: str) -> Any:
            return await asyncio.to_thread(swarm, "pool", *words, "--socket", str(short / "g.sock"), cwd=tmp_path)

        assert "was not draining" in (await said("admit", "box")).out
        dead = await said("add", "dead", "http://127.0.0.1:9", "--tier", "other")
        assert (dead.code, "the tier other is new" in dead.err, "nobody listens" in dead.err) == (0, True, True)
        assert (await said("status")).code == 8  # of the tier other
        assert (await said("remove", "dead")).code == 0
        assert (await said("status")).code == 0
        await said("drain", "box")
        assert "sent requests again" in (await said("admit", "box")).out
        unknown = await said("drain", "nobody")
        assert (unknown.code, "there is no endpoint nobody" in unknown.err) == (3, True)
        again = await said("add", "box", server.url)
        assert (again.code, "already" in again.err, "remove it first" in again.err) == (3, True, True)
        await server.stop()
        while pool.status()[0].state != "down":  # noqa: ASYNC110  seen from outside
            await asyncio.sleep(0.05)
        assert (await said("status")).code == 8


def gateway_for(url: str, folder: Path) -> PoolConfig:
    gateway = GatewayConfig(port=0, socket=str(folder / "g.sock"), drain_notice=0.0)
    return PoolConfig(endpoints=(EndpointConfig(name="box", url=url, tier="t"),), gateway=gateway, probe_interval=0.1)


def test_wrong_addresses_of_a_gateway_are_told_with_their_own_mend(swarm, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            ("--port", port): "take another --port",
            ("--port", "0", "--socket", "/none/x.sock"): "take another --socket",
            ("--port", "0", "--host", "0.0.0.0"): "or listen on 127.0.0.1",  # noqa: S104  refused
        }
        for words, mend in cases.items():
            ran = swarm("pool", "serve", "--endpoint", "http://127.0.0.1:9", *words, cwd=tmp_path)
            assert ran.code == 3, ran.err
            assert mend in " ".join(ran.err.split())
            assert "swarm pool status" not in ran.err


async def test_a_server_given_by_url_is_mended_by_options_and_a_web_page_is_no_server(swarm, tmp_path: Path) -> None:
    async def page(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = b"<html><title>Shop</title></html>"
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(text))
        writer.write(text)
        writer.close()

    web = await asyncio.start_server(page, "127.0.0.1", 0)
    async with web:
        port = web.sockets[0].getsockname()[1]
        ran = await asyncio.to_thread(swarm, "pool", "doctor", "--quick", f"http://127.0.0.1:{port}", cwd=tmp_path)
        tls = await asyncio.to_thread(swarm, "pool", "doctor", "--quick", f"https://127.0.0.1:{port}", cwd=tmp_path)
    assert "no OpenAI-compatible address" in ran.out
    assert "of this endpoint" not in ran.out + tls.out
    assert "nobody listens" not in tls.out
    assert "write http://" in tls.out


def test_a_dead_server_runs_nothing_that_we_know_of() -> None:
    shown = row(one(state="down", phase="dead", running=3, waiting=0, kv_usage=0.5))
    assert shown[6:8] == ("?/?", "?")


def test_an_address_that_two_endpoints_name_is_warned_of() -> None:
    urls = ("http://h:1/v1", "http://h:1", "http://h:2")
    config = PoolConfig(endpoints=tuple(EndpointConfig(name=f"e{n}", url=url) for n, url in enumerate(urls)))
    (said,) = doubled(config)
    assert "e0, e1 all name http://h:1" in said
