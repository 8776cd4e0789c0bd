"""The description of the api: valid OpenAPI, every route in it, and every answer as it says."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from swarm.api.application import described
from swarm.api.guard import Guard
from tests.swarm.api.conftest import LONG, House, request

pytestmark = pytest.mark.slow

TALKED = {"text/event-stream", "text/x-diff", "text/plain", "application/gzip"}


@pytest.fixture
def app(house: House) -> Any:
    return described(house.desk)


@pytest.fixture
async def http(app: Any, house: House) -> AsyncIterator[httpx.AsyncClient]:
    """A caller whom the kernel has named, with no socket in between."""
    guard = Guard(app, house.desk)

    async def known(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["peer_uid"] = 0
        await guard(scope, receive, send)

    transport = httpx.ASGITransport(known, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://swarm", timeout=LONG) as client:
        yield client


def test_the_description_is_valid_openapi(app: Any) -> None:
    OpenAPIV31SpecValidator(app.openapi()).validate()


def test_every_route_is_described_with_words_and_a_name_of_its_own(app: Any) -> None:
    paths = app.openapi()["paths"]
    names = []
    for route in (route for included in app.routes for route in getattr(included, "original_router", app).routes):
        if not isinstance(route, APIRoute):
            continue
        path = re.sub(r":\w+}", "}", route.path)
        for method in route.methods or ():
            said = paths[path][method.lower()]
            assert said["description"], (method, path)
            assert {"401", "403", "422", "429", "500"} <= set(said["responses"]), (method, path)
            names.append(said["operationId"])
    assert len(names) == len(set(names)) > 15


def test_every_refusal_is_described_as_a_failure(app: Any) -> None:
    for path, methods in app.openapi()["paths"].items():
        for method, said in methods.items():
            for status, answer in said["responses"].items():
                if int(status) >= 400:
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Failure"}, (method, path, status)


def test_no_capability_nor_hash_is_among_the_answers(app: Any) -> None:
    schemas = app.openapi()["components"]["schemas"]
    assert "TokenConfig" not in schemas
    assert not [name for name, schema in schemas.items() if "sha256" in schema.get("properties", {})]


@cache
def operation(description: str, method: str, path: str) -> Any:
    """What the description says of a call."""
    for template, methods in json.loads(description)["paths"].items():
        if method in methods and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
            return methods[method]
    raise AssertionError(f"{method} {path} is not described")


def hold(app: Any, answer: httpx.Response) -> None:
    """Hold an answer to what the description says of it."""
    description = app.openapi()
    method, path = answer.request.method.lower(), answer.request.url.path
    said = operation(json.dumps(description), method, path)["responses"]
    kind = answer.headers["content-type"].split(";")[0]
    assert str(answer.status_code) in said, (method, path, answer.status_code, answer.text)
    content = said[str(answer.status_code)]["content"]
    assert kind in content, (method, path, kind)
    if kind not in TALKED:
        schema = content[kind]["schema"] | {"components": description["components"]}
        Draft202012Validator(schema).validate(answer.json())


GOOD = [
    ("GET", "/v1/health", None),
    ("GET", "/v1/status", None),
    ("GET", "/v1/hosts", None),
    ("GET", "/v1/counts", None),
    ("GET", "/v1/tasks", None),
    ("GET", "/v1/tasks?state=queued&state=running&repository=demo&limit=1", None),
    ("GET", "/v1/tasks/one", None),
    ("GET", "/v1/tasks/one/steps", None),
    ("GET", "/v1/tasks/one/diff", None),
    ("GET", "/v1/tasks/one/export", None),
    ("GET", "/v1/tasks/one/messages", None),
    ("POST", "/v1/tasks/one/messages", {"text": "mind the tests"}),
    ("POST", "/v1/tasks/one/priority", {"priority": 80}),
    ("POST", "/v1/tasks/one/pause", None),
    ("POST", "/v1/tasks/one/resume", None),
    ("POST", "/v1/tasks/one/cancel", None),
    ("GET", "/v1/tasks/one/events", None),
    ("POST", "/v1/tasks/one/retry", {"capability": "d" * 20}),
    ("GET", "/v1/queue", None),
    ("GET", "/v1/breakers", None),
    ("GET", "/v1/schedules", None),
    ("GET", "/v1/tasks/one/time", None),
    ("GET", "/v1/times?days=2&repository=demo", None),
    ("GET", "/v1/budgets", None),
]
ELSEWHERE = {"/v1/events", "/v1/schedules/{name}", "/metrics"}  # never ends; needs one; is no JSON


async def test_every_answer_is_as_described(app: Any, http: httpx.AsyncClient) -> None:
    made = await http.post("/v1/tasks", json=request(task="one", idempotency_key="k").model_dump(mode="json"))
    assert made.status_code == 201
    hold(app, made)
    for method, path, body in GOOD:
        answer = await http.request(method, path, **({"json": body} if body else {}))
        assert answer.is_success, (method, path, answer.text)
        hold(app, answer)
    asked = {path.partition("?")[0].replace("/one", "/{task}") for method, path, _ in GOOD if method == "GET"}
    assert {path for path, said in app.openapi()["paths"].items() if "get" in said} - asked <= ELSEWHERE


BAD = [
    ("POST", "/v1/tasks", {"json": {"repository": "demo"}}, 422),
    ("POST", "/v1/tasks", {"content": b'{"repository":"demo","instructions":"x"}'}, 422),
    ("POST", "/v1/tasks", {"json": {"repository": "demo", "instructions": "x"}}, 422),
    ("POST", "/v1/tasks/one/messages", {"json": {"text": ""}}, 422),
    ("POST", "/v1/tasks/one/messages", {"json": {"text": "x" * 20_001}}, 422),
    ("POST", "/v1/tasks/none/cancel", {}, 404),
    ("POST", "/v1/tasks/one/priority", {"json": {"priority": 101}}, 422),
    ("POST", "/v1/tasks/one/priority", {"json": {}}, 422),
    ("POST", "/v1/tasks/none/priority", {"json": {"priority": 1}}, 404),
    ("POST", "/v1/tasks/one/retry", {"json": {"capability": "x", "base": "y"}}, 422),
    ("POST", "/v1/tasks/one/retry", {}, 409),
    ("GET", "/v1/tasks/..%2Fhealth", {}, 404),
    ("GET", "/v1/tasks/UPPER", {}, 422),
    ("GET", "/v1/tasks/none/events", {}, 404),
    ("GET", "/v1/events?after=-1", {}, 422),
    ("GET", "/v1/tasks/one/events", {"headers": {"last-event-id": "x"}}, 422),
    ("POST", "/v1/tasks/one/fork", {"json": {"task": "two", "capability": "c"}}, 422),
]


async def test_every_refusal_is_a_failure_with_its_three_parts(app: Any, http: httpx.AsyncClient) -> None:
    await http.post("/v1/tasks", json=request(task="one").model_dump(mode="json"))
    for method, path, more, status in BAD:
        answer = await http.request(method, path, **more)
        assert answer.status_code == status, (method, path, answer.text)
        assert set(answer.json()) == {"what", "why", "mend"}
        assert all(answer.json().values()), (path, answer.text)
        if "%2F" not in path:
            hold(app, answer)


async def test_a_fault_of_ours_is_told_without_its_traceback_or_its_words(
    house: House, http: httpx.AsyncClient
) -> None:
    async def broken() -> Any:
        raise RuntimeError("/secret/path and a token")

    object.__setattr__(house.desk, "status", broken)
    answer = await http.get("/v1/status")
    assert answer.status_code == 500
    assert answer.json()["why"] == "RuntimeError"
    assert "secret" not in answer.text


async def test_the_description_is_served_to_whoever_may_look(http: httpx.AsyncClient) -> None:
    told = (await http.get("/v1/openapi.json")).json()
    assert told["openapi"].startswith("3.1")
    assert told["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
