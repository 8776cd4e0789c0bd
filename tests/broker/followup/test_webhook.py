"""The listener: only a good signature counts, and what a call says counts never."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from starlette.testclient import TestClient

from broker.followup import webhook
from broker.followup.webhook import Webhook, signed

SECRET = b"s3cret-of-the-hook"


def signature(body: bytes, secret: bytes = SECRET) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


class Hooked:
    """A listener and what it hinted at."""

    def __init__(self) -> None:
        self.hints: list[str] = []
        self.now = 0.0
        self.webhook = Webhook(lambda: SECRET, lambda: {"demo", "other"}, self.hints.append, lambda: self.now)
        self.client = TestClient(self.webhook.app())

    def github(self, body: bytes = b"{}", name: str = "demo", **headers: str) -> Any:
        given = {"X-Hub-Signature-256": f"sha256={signature(body)}", **headers}
        return self.client.post(f"/hook/{name}", content=body, headers=given)


@pytest.fixture
def hooked() -> Hooked:
    return Hooked()


def test_each_forge_s_signature_is_known(hooked: Hooked) -> None:
    assert hooked.github(b"1").status_code == 204
    hooked.client.post("/hook/demo", content=b"2", headers={"X-Gitea-Signature": signature(b"2")})
    hooked.client.post("/hook/other", content=b"3", headers={"X-Gitlab-Token": SECRET.decode()})
    assert hooked.hints == ["demo", "demo", "other"]


def test_github_s_own_example_is_verified() -> None:
    """docs.github.com, "Validating webhook deliveries", testing the webhook payload validation."""
    headers = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    assert signed(headers, b"Hello, World!", b"It's a Secret to Everybody")
    assert not signed(headers, b"Hello, World?", b"It's a Secret to Everybody")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": signature(b"{}")},
        {"X-Hub-Signature-256": "sha256=" + signature(b"{}", b"another")},
        {"X-Hub-Signature-256": "sha1=" + signature(b"{}")},
        {"X-Hub-Signature": "sha1=" + hmac.new(SECRET, b"{}", hashlib.sha1).hexdigest()},
        {"X-Gitea-Signature": ""},
        {"X-Gitea-Signature": signature(b"{} ")},
        {"X-Gitlab-Token": ""},
        {"X-Gitlab-Token": SECRET.decode()[:-1]},
        {"X-Gitlab-Token": SECRET.decode() + "x"},
        {"X-Gitlab-Token": "\u00e4".encode("latin-1").decode("latin-1")},
        {"Authorization": SECRET.decode()},
    ],
)  # fmt: skip
def test_a_forged_call_is_turned_away_without_a_word(hooked: Hooked, headers: dict[str, str]) -> None:
    for name in ("demo", "nowhere"):
        encoded = {key: value.encode("latin-1") for key, value in headers.items()}
        answer = hooked.client.post(f"/hook/{name}", content=b"{}", headers=encoded)
        assert (answer.status_code, answer.content) == (401, b"")
    assert hooked.hints == []


def test_without_a_secret_nothing_is_signed() -> None:
    assert not signed({"x-gitlab-token": ""}, b"", b"")
    assert not signed({"x-hub-signature-256": "sha256=" + hmac.new(b"", b"", hashlib.sha256).hexdigest()}, b"", b"")


def test_a_signed_call_for_an_unknown_repository_is_nothing(hooked: Hooked) -> None:
    answer = hooked.github(name="nowhere")
    assert (answer.status_code, answer.content) == (404, b"")
    assert hooked.client.post("/hook/", content=b"").status_code in {404, 405}
    assert hooked.client.get("/hook/demo").status_code == 405
    assert hooked.hints == []


def test_a_replayed_delivery_hints_once(hooked: Hooked) -> None:
    hooked.github(b"a", **{"X-GitHub-Delivery": "1"})
    hooked.github(b"a", **{"X-GitHub-Delivery": "1"})
    hooked.github(b"a", **{"X-GitHub-Delivery": "2"})  # the id is not signed
    hooked.github(b"b", **{"X-GitHub-Delivery": "1"})
    assert hooked.hints == ["demo"]
    hooked.github(b"c", **{"X-GitHub-Delivery": "3"})
    assert hooked.hints == ["demo", "demo"]


def test_what_the_body_says_is_never_read(hooked: Hooked) -> None:
    for body in (b"", b"\xff\xfe", b'{"repository": {"full_name": "other"}}', b"[" * 100_000):
        assert hooked.github(body).status_code == 204
    assert set(hooked.hints) == {"demo"}


def test_a_large_body_is_not_read_to_its_end(hooked: Hooked) -> None:
    body = b"x" * (webhook.MAX_BODY + 1)
    assert hooked.github(body).status_code == 413
    chunks = (body[at : at + 65_536] for at in range(0, len(body), 65_536))
    answer = hooked.client.post("/hook/demo", content=chunks, headers={"X-Gitlab-Token": SECRET.decode()})
    assert answer.status_code == 413
    assert hooked.hints == []


def test_a_flood_is_turned_away(hooked: Hooked) -> None:
    burst = int(webhook.BURST)
    codes = [hooked.client.post("/hook/demo", content=b"x").status_code for _ in range(burst + 20)]
    assert codes == [401] * burst + [429] * 20
    hooked.now += 3 / webhook.PER_SECOND
    assert [hooked.client.post("/hook/demo", content=b"x").status_code for _ in range(5)] == [401] * 3 + [429] * 2


def test_what_is_remembered_of_deliveries_is_bounded(hooked: Hooked) -> None:
    hooked.webhook._seen.update({f"old {number}": None for number in range(webhook.MAX_DELIVERIES)})
    hooked.github(b"new")
    assert len(hooked.webhook._seen) == webhook.MAX_DELIVERIES
