"""What a container is made with: nothing of a task's secrets, nothing that an image chose."""

from __future__ import annotations

import json

import pytest

from sandbox.container.engine import Image
from sandbox.container.making import (
    MACHINE_LABEL,
    OWNER_LABEL,
    SPEC_LABEL,
    UID_LABEL,
    for_stranger,
    labels_of,
    machine_of,
    settings_of,
    spec_of,
    uid_of,
)
from sandbox.errors import SandboxUnavailableError
from sandbox.rules.profile import profile_of
from sandbox.types import MIB, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(disk=7 * MIB), labels={"task": "t"}, env={"TOKEN": "canary"})


def test_labels_bring_back_what_a_rescue_needs_and_no_variable() -> None:
    labels = labels_of("tag", "here", SPEC, 70123)
    assert "canary" not in json.dumps(labels)
    assert (labels[OWNER_LABEL], labels[MACHINE_LABEL]) == ("tag", "here")
    found = spec_of(labels)
    assert (found.labels, found.limits, found.env) == (SPEC.labels, SPEC.limits, {})


@pytest.mark.parametrize("label", ["", "not json", "[]", '{"limits": {"disk": -1}}', '{"image": 5}', "{" * 1000])
def test_a_label_that_cannot_be_read_is_the_default_spec(label: str) -> None:
    assert spec_of({SPEC_LABEL: label}) == SandboxSpec()
    assert spec_of({}) == SandboxSpec()


@pytest.mark.parametrize(
    ("told", "uid"),
    [
        *(("70000", 70_000), ("70123", 70_123), ("70999", 70_999)),
        *(("", 70_000), ("0", 70_000), ("71000", 70_000), ("-1", 70_000), ("7" * 5000, 70_000), ("٧٠١٢٣", 70_000)),
    ],
)
def test_no_label_makes_another_user_than_an_agent_be_killed(told: str, uid: int) -> None:
    assert uid_of({UID_LABEL: told}) == uid
    assert uid_of({}) == 70_000


def test_machines_are_told_apart_by_id_and_by_name() -> None:
    assert machine_of("id\n", "a") == machine_of("id", "a")
    assert len({machine_of("id", "a"), machine_of("id", "b"), machine_of("", "a"), machine_of("", "b")}) == 4


def test_the_keeper_has_no_variable_of_the_task_and_shown_folders_are_read_only() -> None:
    settings = settings_of(
        profile_of(SPEC), "x86_64", uid=70123, runtime="crun", shown={"/opt/b": "/b", "/opt/a": "/a"}
    )
    assert "uid=70123,gid=70123" in settings["tmpfs"]["/work"]
    assert "TOKEN" not in settings["environment"]
    assert settings["runtime"] == "crun"
    assert [(mount["target"], mount["source"]) for mount in settings["mounts"]] == [("/opt/a", "/a"), ("/opt/b", "/b")]
    assert all(mount["read_only"] and mount["type"] == "bind" for mount in settings["mounts"])
    assert "runtime" not in settings_of(profile_of(SPEC), "x86_64", uid=70123, runtime=None)


def test_a_strangers_image_gets_our_programs_and_no_place_that_lasts() -> None:
    image = Image(id="sha256:" + "0" * 64, env={"LD_PRELOAD": "/evil.so", "PATH": "/evil"}, volumes=("/data", "/work/"))
    ours = settings_of(profile_of(SPEC), "x86_64", uid=70123, runtime=None)
    settings = for_stranger(ours, image, "volume")
    places = {mount["target"]: mount for mount in settings["mounts"]}
    assert set(places) == {"/.swarm/usr", "/etc/ld.so.preload", "/data"}
    assert places["/.swarm/usr"]["read_only"]
    assert places["/etc/ld.so.preload"]["source"] == "/dev/null"
    assert places["/data"]["type"] == "tmpfs"
    assert settings["environment"]["LD_PRELOAD"] == ""
    assert settings["environment"]["PATH"] == ours["environment"]["PATH"]
    greedy = image.model_copy(update={"volumes": tuple(f"/v{n}" for n in range(17))})
    with pytest.raises(SandboxUnavailableError, match="declares 17 volumes; mend: "):
        for_stranger(ours, greedy, "volume")
