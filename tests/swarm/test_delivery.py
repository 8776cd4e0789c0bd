"""The broker's client against the real broker and against one that misbehaves; proposals made of what was found."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from broker.wire import GrantRequest, MirrorRequest, Receipt, Waiting, decode_proposal
from sandbox.trees.workspace import Workspace
from sandbox.types import SelfTest
from swarm.delivery import BrokerClient, Offer, compose
from swarm.errors import BrokerError, BrokerShutError, BrokerUnreachableError
from swarm.serving import http_server
from swarm.types import Attempt, Budget, CheckReport, Conclusion, Sealed, Spent, Task, TaskRequest, TestRun, Weakened

OID = "a" * 40
RUN = TestRun(command="make test", exit_code=1, passed=("a", "b"), failed=("c",))


def offer(**more: Any) -> Offer:
    request = TaskRequest(repository="demo", instructions="make clamp right\nplease", capability="cap", task="t1")
    values: dict[str, Any] = {
        "task": Task(id="t1", request=request, budget=Budget(), created=0.0),
        "attempt": Attempt(id="t1-1", task="t1", number=1, tier="small", strategy="agent", started=0.0),
        "conclusion": Conclusion(ending="finished", title="Fix clamp", summary="why", model="m"),
        "report": CheckReport(base=RUN, proposal=RUN, fixed=("c",), verdict="passed"),
        "spent": Spent(tokens=7, wall=1.5, attempts=2),
        "sealed": Sealed(base=OID, tree="b" * 40, files=("f",), changed=True),
    }
    return Offer(**values | more)


def test_the_id_follows_from_the_task_and_changes_only_after_a_refusal() -> None:
    other = Attempt(id="t1-2", task="t1", number=2, tier="large", strategy="agent", started=9.0)
    assert compose(offer()).id == compose(offer(attempt=other, spent=Spent(attempts=3))).id == "t1"
    assert compose(offer(refusals=1)).id == "t1-2"


def test_what_a_reviewer_has_to_know_of_the_tests_comes_before_the_agents_words() -> None:
    assert compose(offer()).body == "why"
    weakened = (Weakened(kind="skipped", path="test_c.py", test="test_c", text="it is skipped"),)
    report = CheckReport(base=RUN, proposal=RUN, verdict="passed", weakened=weakened)
    long = Conclusion(ending="finished", summary="x" * 100_000)
    body = compose(offer(report=report, conclusion=long)).body
    assert "`test_c.py: test_c`: skipped: it is skipped" in body[:300]
    assert len(body) == 64_000


def test_the_evidence_is_what_was_observed() -> None:
    found = compose(offer()).evidence
    assert found.before is not None
    assert (found.before.passed, found.before.failed, found.fixed) == (2, ("c",), ("c",))
    assert (found.model, found.tier, found.tokens, found.attempts) == ("m", "small", 7, 2)
    chosen = Conclusion(ending="finished", strategy="sampled_repair")
    assert (found.strategy, compose(offer(conclusion=chosen)).evidence.strategy) == ("agent", "sampled_repair")


def test_what_the_sandboxes_proved_goes_along_and_is_cut_to_the_wire() -> None:
    assert compose(offer()).evidence.proof is None
    proved = SelfTest(
        backend="docker",
        version="docker 20.10",
        proved=("no network", "no route out"),
        detail={"runtime": "runc 1.1.5"},
    )
    evidence = compose(offer(proved=proved)).evidence
    assert evidence.sandbox == "docker 20.10"
    assert evidence.proof is not None
    assert evidence.proof.model_dump() == {
        "backend": "docker",
        "version": "docker 20.10",
        "claims": ("no network", "no route out"),
        "detail": {"runtime": "runc 1.1.5"},
        "digest": proved.digest,
    }
    other = proved.model_copy(update={"proved": ("no network",)})
    assert proved.digest != other.digest
    long = SelfTest(
        backend="docker",
        version="v" * 900,
        proved=tuple(f"{number}" + "c" * 900 for number in range(200)),
        detail={f"{number}" + "k" * 90: "d" * 900 for number in range(90)},
    )
    cut = compose(offer(proved=long)).evidence.proof
    assert cut is not None
    assert (len(cut.claims), len(cut.detail), len(cut.version)) == (64, 16, 100)


def test_the_title_is_one_line_from_the_person_the_agent_or_the_task() -> None:
    assert compose(offer()).title == "Fix clamp"
    assert compose(offer(conclusion=Conclusion(ending="finished"))).title == "make clamp right"
    long = Conclusion(ending="finished", title="x" * 900 + "\nsecond", summary="s" * 70_000)
    made = compose(offer(conclusion=long))
    assert len(made.title) == 200
    assert len(made.body) == 64_000


def test_more_tests_than_the_wire_takes_are_cut() -> None:
    names = tuple(f"test_{number}" for number in range(900))
    many = RUN.model_copy(update={"failed": names, "command": "x" * 9000})
    made = compose(offer(report=CheckReport(base=many, proposal=many, fixed=names, broken=names, verdict="failed")))
    assert len(made.evidence.fixed) == 500


class TestRealBroker:
    async def test_from_grant_to_the_same_receipt_twice(self, tmp_path: Path, shared_broker: Any, name: str) -> None:
        workspace = Workspace(tmp_path / "demo.git")
        async with BrokerClient(shared_broker.socket) as client:
            assert (await client.health()).uid == os.getuid()
            assert [each.name for each in (await client.repositories()).repositories] == ["demo"]
            async with BrokerClient(shared_broker.people) as person:
                grant = await person.grant(GrantRequest(repository="demo", task=name))

            async def take(commit: str, pack: AsyncIterator[bytes]) -> None:
                await workspace.take_pack(pack, commit)

            base = await client.mirror(MirrorRequest(capability=grant.capability), take)
            assert base == grant.base_commit
            assert await workspace.has(base)
            sealed = await workspace.seal(base, workspace.checkout(base), limit=1 << 20)
            request = TaskRequest(repository="demo", instructions="x", capability=grant.capability, task=name)
            task = Task(id=name, request=request, budget=Budget(), created=0.0)
            tree = await changed_tree(workspace, base, sealed.tree)
            made = compose(offer(task=task, sealed=Sealed(base=base, tree=tree.tree, changed=True)))
            assert await client.proposal(made.id) is None
            assert (await client.explain(made, tree.pack)).allowed
            first = await client.propose(made, tree.pack)
            second = await client.propose(made, tree.pack)
            assert isinstance(first, Receipt)
            assert first == second == await client.proposal(made.id)
        assert shared_broker.pulls(name) == 1

    async def test_a_forged_capability_is_turned_down_at_once(self, shared_broker: Any) -> None:
        async def take(commit: str, pack: AsyncIterator[bytes]) -> None:
            raise AssertionError(commit)

        async with BrokerClient(shared_broker.socket, patience=60) as client, asyncio.timeout(10):
            with pytest.raises(BrokerError) as told:
                await client.mirror(MirrorRequest(capability="forged"), take)
        assert not isinstance(told.value, BrokerUnreachableError)


async def changed_tree(workspace: Workspace, base: str, tree: str) -> Any:
    """The base with one file more, sealed by way of a tar stream."""

    async def export() -> AsyncIterator[bytes]:
        end = b"".join([chunk async for chunk in workspace.checkout_tree(tree, base)])[:-1024]
        header = bytearray(512)
        header[:7] = b"new.txt"
        header[100:108] = b"0000644\0"
        header[124:136] = b"00000000002\0"
        header[156:157] = b"0"
        header[257:265] = b"ustar\x0000"
        header[148:156] = b"        "
        header[148:156] = b"%06o\0 " % sum(header)
        yield end + bytes(header) + b"x\n".ljust(512, b"\0") + b"\0" * 1024

    return await workspace.seal(base, export(), limit=1 << 20)


Answer = Callable[[Request], Response]


@asynccontextmanager
async def odd_broker(folder: Path, *answers: Answer) -> AsyncIterator[tuple[Path, list[bytes]]]:
    """A broker that answers as told, the last answer again and again; what it was sent."""
    seen: list[bytes] = []

    async def handle(request: Request) -> Response:
        seen.append(await request.body())
        return answers[min(len(seen), len(answers)) - 1](request)

    app = Starlette(routes=[Route("/{path:path}", handle, methods=["GET", "POST"])])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "b.sock"))
        listener.listen()
        server = http_server(app)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield folder / "b.sock", seen
        server.should_exit = True
        await serving


def problem(status: int, message: str = "no", mend: str = "do") -> Answer:
    return lambda _: JSONResponse({"code": "x", "message": message, "mend": mend}, status)


def receipt(_: Request) -> Response:
    made = Receipt(proposal="t1", pull_request="demo#1", number=1, branch="swarm/t1", commit=OID)
    return Response(made.model_dump_json())


async def test_a_broker_that_stumbles_is_asked_again_with_the_same_words(tmp_path: Path) -> None:
    async with odd_broker(tmp_path, problem(500), problem(502), receipt) as (path, seen), BrokerClient(path) as client:
        assert isinstance(await client.propose(compose(offer()), b"PACK"), Receipt)
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert decode_proposal(seen[0])[1] == b"PACK"


async def test_a_refused_call_is_not_repeated_and_keeps_its_mend(tmp_path: Path) -> None:
    async with odd_broker(tmp_path, problem(403, "not yours", "ask")) as (path, seen), BrokerClient(path) as client:
        with pytest.raises(BrokerError, match="not yours") as told:
            await client.propose(compose(offer()), b"")
    assert told.value.mend == "ask"
    assert len(seen) == 1


def held(_: Request) -> Response:
    return Response(Waiting(proposal="t1", reason="stopped").model_dump_json())


@pytest.mark.parametrize("status", [423, 429, 502])
async def test_what_the_broker_keeps_is_no_error(tmp_path: Path, status: int) -> None:
    answers = problem(status), held
    async with odd_broker(tmp_path, *answers) as (path, _), BrokerClient(path, patience=0) as client:
        assert (await client.propose(compose(offer()), b"")).kind == "waiting"


@pytest.mark.parametrize(("status", "kind"), [(423, BrokerShutError), (502, BrokerUnreachableError)])
async def test_what_the_broker_never_kept_is_one(tmp_path: Path, status: int, kind: type[BrokerError]) -> None:
    answers = problem(status, "shut", "go"), problem(404)
    async with odd_broker(tmp_path, *answers) as (path, _), BrokerClient(path, patience=0) as client:
        with pytest.raises(kind, match="shut"):
            await client.propose(compose(offer()), b"")


async def test_another_content_under_the_same_id_is_not_taken_for_ours(tmp_path: Path) -> None:
    async with odd_broker(tmp_path, problem(409, "used"), receipt) as (path, seen), BrokerClient(path) as client:
        with pytest.raises(BrokerError, match="used"):
            await client.propose(compose(offer()), b"")
    assert len(seen) == 1


def event(number: int, **more: Any) -> dict[str, Any]:
    return {"number": number, "at": 1.0, "repository": "demo", "kind": "review", "task": "t1", "pull": 7, **more}


async def test_what_a_newer_broker_tells_is_left_out_and_the_rest_is_taken(tmp_path: Path) -> None:
    told = [event(1, kind="label"), event(2, colour="red"), event(3, pull="seven"), event(4)]
    page = {"events": told, "last": 4, "more": True}
    async with odd_broker(tmp_path, lambda _: JSONResponse(page)) as (path, _), BrokerClient(path) as client:
        events, last = await client.events(0, 0.0)
    assert ([one.number for one in events], last) == ([2, 4], 4)


@pytest.mark.parametrize("verb", ["health", "repositories", "events", "pull", "comment", "issue", "proposal", "mirror"])
async def test_an_answer_that_is_none_of_a_brokers_is_an_error_that_callers_know(tmp_path: Path, verb: str) -> None:
    async def take(commit: str, pack: AsyncIterator[bytes]) -> None:
        raise AssertionError(commit)

    async with odd_broker(tmp_path, lambda _: Response("<html>")) as (path, _), BrokerClient(path) as client:
        calls: dict[str, Callable[[], Any]] = {
            "health": client.health,
            "repositories": client.repositories,
            "events": lambda: client.events(0, 0.0),
            "pull": lambda: client.pull("c"),
            "comment": lambda: client.comment("c", "working", ""),
            "issue": lambda: client.issue("c"),
            "proposal": lambda: client.proposal("p"),
            "mirror": lambda: client.mirror(MirrorRequest(capability="c"), take),
        }
        with pytest.raises(BrokerError, match="cannot be read"):
            await calls[verb]()
        with pytest.raises(BrokerError, match="none that a broker gives"):
            await client.comment("c" * 8193, "working", "")


@pytest.mark.parametrize(
    ("state", "ours", "merged"),
    [("merged", True, "a" * 40), ("merged", False, None), ("open", True, None), ("closed", True, None)],
)
async def test_only_a_commit_of_the_brokers_own_counts_as_merged(
    tmp_path: Path, state: str, ours: bool, merged: str | None
) -> None:
    told = {"number": 7, "state": state, "head": "a" * 40, "ours": ours}
    async with odd_broker(tmp_path, lambda _: JSONResponse(told)) as (path, _), BrokerClient(path) as client:
        assert await client.merged("c") == merged


async def test_patience_ends(tmp_path: Path) -> None:
    away = problem(502, "forge away")
    async with odd_broker(tmp_path, away) as (path, seen), BrokerClient(path, patience=0.5) as client:
        with pytest.raises(BrokerUnreachableError, match="forge away"):
            await client.propose(compose(offer()), b"")
    assert len(seen) > 1


async def test_an_answer_without_a_reason_is_told_by_its_status(tmp_path: Path) -> None:
    async with odd_broker(tmp_path, lambda _: Response(b"<html>", 418)) as (path, _), BrokerClient(path) as client:
        with pytest.raises(BrokerError, match="418"):
            await client.repositories()


async def test_nobody_there_is_told_with_the_socket_and_a_mend(tmp_path: Path) -> None:
    async with BrokerClient(tmp_path / "none.sock", patience=0) as client:
        with pytest.raises(BrokerUnreachableError, match=r"none\.sock") as told:
            await client.health()
    assert "swarm-broker" in told.value.mend
