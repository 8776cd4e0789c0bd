"""The routes, called in this process as one user or another; that the kernel names the user is test_server's."""

from __future__ import annotations

import asyncio
import json
import threading

import httpx
import pytest

from broker.door.bodies import problem_of
from broker.door.coordinator import CoordinatorDoor
from broker.door.guard import Guard
from broker.door.person import PersonDoor
from broker.errors import BusyError
from broker.rationing import PER_HOUR
from broker.wire import Grant, Health, MirrorRequest, encode_proposal

PERSON, COORDINATOR, NOBODY = 1001, 1002, 1003
ROLES = {"person": [PERSON], "coordinator": [COORDINATOR]}


@pytest.fixture
def door(build_house):
    return build_house(roles=ROLES, max_body_bytes=200_000)


def apps(house, **more):
    """Both sockets' applications."""

    def guard():
        return Guard(house.config.roles, house.service.audit, 2, **more)

    return {
        "coordinator": CoordinatorDoor(house.service, house.config, guard()).app(),
        "person": PersonDoor(house.service, guard()).app(),
    }


def caller(apps):
    async def _call(verb, path, body=None, *, uid=PERSON, at=None, headers=None):
        app = apps[at or ("coordinator" if uid == COORDINATOR else "person")]

        async def as_user(scope, receive, send):
            state = {} if uid is None else {"peer_uid": uid}
            await app({**scope, "state": state}, receive, send)

        transport = httpx.ASGITransport(as_user, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://b") as http:
            return await http.request(verb, path, content=body, headers=headers)

    return _call


@pytest.fixture
def call(door):
    """Calls as a user, on the socket that is meant for it unless another is named."""
    return caller(apps(door))


def encoded(house, task="t1", **more):
    tree = house.agent.tree(house.grant(task).base_commit, house.good)
    return encode_proposal(house.proposal(tree, task, **more), house.agent.pack(tree, house.grant(task).base_commit))


async def test_a_stop_has_its_thread_though_every_other_call_waits(door):
    guard, go = Guard(door.config.roles, door.service.audit, 2), threading.Event()
    ask = caller({"person": PersonDoor(door.service, guard).app()})
    waiting = [asyncio.create_task(guard.call(go.wait, 20)) for _ in range(5)]
    await asyncio.sleep(0)
    try:
        for verb, path, body in (
            ("POST", "/v1/stops", json.dumps({"repository": "demo", "stopped": True}).encode()),
            ("POST", "/v1/grants/none/revoke", None),
            ("GET", "/v1/outbox", None),
            ("GET", "/v1/none", None),
        ):
            found = await asyncio.wait_for(ask(verb, path, body), 5)
            assert found.status_code in {200, 404}
    finally:
        go.set()
        await asyncio.gather(*waiting)


def test_whose_turn_does_not_come_is_told_and_what_goes_on_by_itself_leaves_it(door):
    ward = door.service.desk.wards.get("demo")
    with ward.turn(0.0):
        with pytest.raises(BusyError, match="is being delivered just now") as caught, ward.turn(0.01):
            pass
        assert problem_of(caught.value)[1] == 503
        assert door.service.proposals.resume() == 0
    with ward.turn(0.0):
        pass


PERSONS = [
    ("POST", "/v1/grant"),
    ("GET", "/v1/grants"),
    ("POST", "/v1/grants/x/revoke"),
    ("GET", "/v1/stops"),
    ("POST", "/v1/stops"),
    ("GET", "/v1/log"),
    ("GET", "/v1/log/head"),
    ("GET", "/v1/outbox"),
    ("GET", "/v1/outbox/x"),
    ("POST", "/v1/outbox/x/approve"),
    ("POST", "/v1/outbox/x/discard"),
    ("GET", "/v1/pulls/demo"),
    ("GET", "/v1/pulls/demo/1"),
    ("GET", "/v1/pulls/demo/1/commit"),
    ("POST", "/v1/pulls/demo/1/merge"),
]
COORDINATORS = [
    ("POST", "/v1/mirror"),
    ("POST", "/v1/draw"),
    ("POST", "/v1/propose"),
    ("POST", "/v1/explain"),
    ("POST", "/v1/issue"),
    ("POST", "/v1/pull"),
    ("POST", "/v1/comment"),
    ("GET", "/v1/events"),
]
BOTH = [
    ("GET", "/v1/proposals/x"),
    ("GET", "/v1/repositories"),
    ("GET", "/v1/provenance/demo/1"),
    ("GET", "/v1/key"),
]


SOCKETS = {"person": (PERSON, PERSONS), "coordinator": (COORDINATOR, COORDINATORS)}


@pytest.mark.parametrize("at", SOCKETS)
@pytest.mark.parametrize("uid", [PERSON, COORDINATOR, NOBODY, 0, None])
async def test_a_verb_without_its_role_is_refused(call, at, uid):
    entitled, routes = SOCKETS[at]
    for verb, path in routes if uid == entitled else routes + BOTH:
        if uid == entitled or (uid in {PERSON, COORDINATOR} and (verb, path) in BOTH):
            continue
        answer = await call(verb, path, b"{}" if verb == "POST" else None, uid=uid, at=at)
        assert (answer.status_code, answer.json()["code"]) == (403, "rights"), path


@pytest.mark.parametrize(("at", "others"), [("person", COORDINATORS), ("coordinator", PERSONS)])
async def test_neither_socket_knows_a_route_of_the_other_whoever_asks(door, call, at, others):
    for verb, path in others:
        for uid in (PERSON, COORDINATOR, NOBODY):
            answer = await call(verb, path, b"{}" if verb == "POST" else None, uid=uid, at=at)
            assert answer.status_code == 404, path
    assert [entry.event for entry in door.service.log(0).entries] == []


def test_every_route_is_in_one_of_the_tables_above(door):
    fill = {"{id}": "x", "{repository}": "demo", "{number:int}": "1"}
    for at, app in apps(door).items():
        listed = {*SOCKETS[at][1], *BOTH, ("GET", "/v1/health")}
        found = set()
        for route in app.routes:
            path = route.path
            for name, value in fill.items():
                path = path.replace(name, value)
            found |= {(verb, path) for verb in route.methods - {"HEAD"}}
        assert found == listed


async def test_health_tells_the_caller_as_whom_it_is_seen(call):
    for uid, roles in ((PERSON, ("person",)), (COORDINATOR, ("coordinator",)), (NOBODY, ())):
        answer = await call("GET", "/v1/health", uid=uid)
        assert Health.model_validate_json(answer.content) == Health(uid=uid, role=roles)


async def test_a_header_cannot_claim_another_user(call):
    headers = {"X-Forwarded-For": str(PERSON), "Peer_uid": str(PERSON), "X-Peer-Uid": str(PERSON)}
    assert (await call("GET", "/v1/log", uid=COORDINATOR, at="person", headers=headers)).status_code == 403


async def test_a_grant_and_its_mirror_work_through_the_routes(call):
    given = await call("POST", "/v1/grant", b'{"repository": "demo", "task": "t9"}')
    grant = Grant.model_validate_json(given.content)
    asked = MirrorRequest(capability=grant.capability).model_dump_json().encode()
    answer = await call("POST", "/v1/mirror", asked, uid=COORDINATOR)
    assert answer.headers["x-base-commit"] == grant.base_commit
    assert answer.headers["content-type"] == "application/x-git-packed-objects"
    assert len(answer.content) == int(answer.headers["content-length"])
    assert answer.content.startswith(b"PACK")


async def test_those_turned_away_are_recorded_but_cannot_fill_the_log(call, door):
    for number in range(130):
        await call("GET", "/v1/log", uid=NOBODY + number)  # an account may have many uids
    entries = [entry for entry in door.service.log(0).entries if entry.event == "turned-away"]
    assert len(entries) == PER_HOUR + 1
    assert "left out" in entries[-1].fields["reason"]


async def test_a_body_over_the_limit_is_refused_and_recorded(call, door):
    assert (await call("POST", "/v1/propose", b"x" * 200_001, uid=COORDINATOR)).status_code == 413

    async def chunks():
        for _ in range(5):
            yield b"x" * 60_000

    answer = await call("POST", "/v1/propose", chunks(), uid=COORDINATOR, headers={"content-length": "10"})
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert answer.json()["mend"]
    assert [entry.event for entry in door.service.log(0).entries] == ["too-large"] * 2


@pytest.mark.parametrize(
    ("path", "uid", "status"),
    [
        (f"/v1/provenance/demo/{'9' * 5000}", COORDINATOR, 400),
        (f"/v1/provenance/demo/{'9' * 30}", COORDINATOR, 404),
        (f"/v1/events?after=-{'9' * 30}", COORDINATOR, 200),
        (f"/v1/events?after={'9' * 5000}", COORDINATOR, 400),
        ("/v1/events?wait=nan", COORDINATOR, 200),
        (f"/v1/pulls/demo/{'9' * 30}", PERSON, 404),
        (f"/v1/pulls/demo/{'9' * 5000}", PERSON, 400),
        (f"/v1/log?after={'9' * 30}", PERSON, 200),
        (f"/v1/log?after=-{'9' * 30}", PERSON, 200),
        (f"/v1/log/head?number={'9' * 30}", PERSON, 404),
    ],
)
async def test_no_number_is_too_much_for_an_answer(call, path, uid, status):
    assert (await call("GET", path, uid=uid)).status_code == status


async def test_a_body_in_chunks_is_not_read(call):
    async def crumbs():
        yield b"{"
        raise AssertionError("the second crumb was asked for")

    answer = await call("POST", "/v1/mirror", crumbs(), uid=COORDINATOR)
    assert (answer.status_code, answer.headers["connection"], answer.json()["code"]) == (411, "close", "411")


@pytest.mark.parametrize(("path", "uid"), [("/v1/grant", PERSON), ("/v1/mirror", COORDINATOR)])
async def test_small_verbs_read_small_bodies(call, path, uid):
    assert (await call("POST", path, b"x" * 70_000, uid=uid)).status_code == 413


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/grant", b"not json"),
        ("/v1/grant", b'{"repository": "demo", "task": "t", "remote": "https://evil"}'),
        ("/v1/grant", b'{"repository": "../demo", "task": "t"}'),
        ("/v1/grant", b'{"repository": "demo", "task": "t\\n"}'),
        ("/v1/grant", b'{"repository": "demo", "task": "t", "uses": 1000}'),
        ("/v1/mirror", b'{"capability": "x", "have": ["main"]}'),
        ("/v1/propose", b""),
        ("/v1/propose", b"SWP1\x00\x00\xff\xff{}"),
        ("/v1/propose", b"SWP1\xff\xff\xff\xff{}"),
        ("/v1/propose", b"SWP1\x00\x00\x00\x02{}"),
        ("/v1/propose", b"XXXX\x00\x00\x00\x02{}"),
        ("/v1/propose", b"SWP1\x00\x00\x00\x02\xff\xff"),
    ],
)
async def test_a_malformed_body_is_a_problem_in_plain_words(call, path, body):
    answer = await call("POST", path, body, uid=PERSON if path == "/v1/grant" else COORDINATOR)
    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed"
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("field", ["forge", "remote", "branch", "policy", "base", "credential"])
async def test_no_field_of_a_proposal_names_forge_branch_or_policy(call, door, field):
    body = encoded(door)
    length = int.from_bytes(body[4:8])
    head = json.dumps(json.loads(body[8 : 8 + length]) | {field: "x"}).encode()
    answer = await call(
        "POST", "/v1/propose", body[:4] + len(head).to_bytes(4) + head + body[8 + length :], uid=COORDINATOR
    )
    assert answer.status_code == 400
    assert field in answer.json()["message"]


@pytest.mark.parametrize("path", ["/", "/v1/credential", "/v1/token", "/v1/../etc", "/v1/pulls/demo/x", "/v2/grant"])
async def test_there_is_no_other_path(call, path):
    assert (await call("GET", path)).status_code == 404


@pytest.mark.parametrize("name", ["..", "..%2f..%2fcredential", "%00", "a'; DROP TABLE proposals; --", "x" * 5000])
async def test_a_name_in_a_path_is_only_a_name(call, name):
    for path in (f"/v1/proposals/{name}", f"/v1/outbox/{name}", f"/v1/pulls/{name}"):
        assert (await call("GET", path)).status_code == 404


async def test_a_number_that_is_none_is_malformed(call):
    assert (await call("GET", "/v1/log?after=x")).status_code == 400


async def test_a_refusal_is_an_answer_and_a_problem_is_not(call, door):
    good = await call("POST", "/v1/propose", encoded(door), uid=COORDINATOR)
    assert (good.status_code, good.json()["kind"]) == (200, "receipt")
    forged = await call("POST", "/v1/propose", encoded(door, capability="x"), uid=COORDINATOR)
    assert (forged.status_code, forged.json()["code"]) == (403, "capability")
    again = await call("POST", "/v1/grant", b'{"repository": "demo", "task": "t1"}')
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert all(problem.json()["mend"] for problem in (forged, again))


async def test_an_error_that_nobody_foresaw_tells_its_class_alone(door):
    class Odd:
        def __getattr__(self, name):
            raise RuntimeError("canary-inside")

    app = PersonDoor(Odd(), Guard(door.config.roles, door.service.audit, 1)).app()
    answer = await caller({"person": app})("GET", "/v1/repositories")
    assert answer.status_code == 500
    assert "RuntimeError" in answer.text
    assert "canary-inside" not in answer.text


async def test_words_of_a_problem_pass_the_redactor(door):
    call = caller(apps(door, redact=lambda text: text.replace("hunter2", "[secret]")))
    answer = await call("GET", "/v1/pulls/hunter2")
    assert answer.status_code == 404
    assert "hunter2" not in answer.text
    assert "[secret]" in answer.text


async def test_a_planted_secret_is_seen_wherever_it_comes_in_and_the_call_is_refused(door):
    seen = []

    def watch(where, text):
        found = b"planted-1" in text
        if found:
            seen.append(where)
        return found

    call = caller(apps(door, watch=watch))
    asked = b'{"repository": "demo", "task": "t1", "base": "planted-1"}'
    answers = [
        await call("POST", "/v1/grant", asked),
        await call("GET", "/v1/log?after=planted-1"),
        await call("GET", "/v1/log", headers={"Authorization": "token planted-1"}),
        await call("GET", "/v1/outbox/planted-1"),
        await call("POST", "/v1/mirror", b'{"capability": "planted-1"}', uid=COORDINATOR),
        await call("POST", "/v1/propose", encoded(door, body="planted-1"), uid=COORDINATOR),
    ]
    assert [answer.status_code for answer in answers] == [403] * 6
    assert len(seen) == 6
    assert f"uid {COORDINATOR}" in seen[-1]
    assert "planted-1" not in "".join(answer.text for answer in answers)
