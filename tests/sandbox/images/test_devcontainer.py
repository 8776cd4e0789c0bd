"""What is taken of devcontainer.json, and that nothing dangerous in one is obeyed or passed over in silence."""

from __future__ import annotations

import json
import time

import pytest

from sandbox.errors import ImageError
from sandbox.images import jsonc
from sandbox.images.devcontainer import read_devcontainer
from sandbox.images.sources import Dockerfile, Reference

WHOLE = """\ufeff{
  // a comment with a " in it
  "name": "x", /* another // one */
  "image": "registry.example/team/python:3.12",
  "containerEnv": { "A": "${localWorkspaceFolder}/a", "B": "${localEnv:HOME:none}", "C": "http://not-a-comment//", },
  "remoteEnv": { "PATH": "/opt/x:${containerEnv:PATH}", "GONE": null },
  "onCreateCommand": "pip install -r requirements.txt",
  "updateContentCommand": ["echo", "two words", "$HOME"],
  "postCreateCommand": { "one": "make", "two": ["npm", "ci"], },
}"""


def test_image_variables_and_commands_are_taken_in_order() -> None:
    found = read_devcontainer(WHOLE)
    assert found.source == Reference(name="registry.example/team/python:3.12")
    assert found.commands == ("pip install -r requirements.txt", "echo 'two words' '$HOME'", "make", "npm ci")
    assert found.environment({"PATH": "/usr/bin"}) == {
        "A": "/work/a",
        "B": "none",
        "C": "http://not-a-comment//",
        "PATH": "/opt/x:/usr/bin",
    }
    assert found.told == ()


def test_a_dockerfile_lies_in_its_context_in_the_repository() -> None:
    text = '{"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"V": "1"}}}'
    assert read_devcontainer(text).source == Dockerfile(file=".devcontainer/Dockerfile", context=".", args={"V": "1"})
    assert read_devcontainer('{"dockerFile": "D"}').source == Dockerfile(file="D", context=".devcontainer")
    assert read_devcontainer('{"build": {"dockerfile": "D"}}', ".devcontainer.json").source == Dockerfile(file="D")
    for build in (
        {"dockerfile": "../../D"},
        {"dockerfile": "/etc/passwd"},
        {"dockerfile": "D", "context": "/"},
        {"dockerfile": "D", "context": "../.."},
        {"dockerfile": "../D"},
        {"dockerfile": 1},
        [],
    ):
        with pytest.raises(ImageError):
            read_devcontainer(json.dumps({"build": build}))


DANGEROUS = {
    "image": "a",
    "privileged": True,
    "runArgs": ["--privileged", "--network=host", "-v", "/:/host"],
    "mounts": ["source=/var/run/docker.sock,target=/var/run/docker.sock,type=bind"],
    "capAdd": ["SYS_ADMIN"],
    "securityOpt": ["seccomp=unconfined"],
    "initializeCommand": "touch /tmp/ran-on-the-host",
    "features": {"ghcr.io/evil/feature:1": {}},
    "forwardPorts": [22],
    "workspaceMount": "source=/,target=/work,type=bind",
    "remoteUser": "root",
    "postStartCommand": "x",
    "postAttachCommand": "x",
}


def test_dangerous_options_are_named_and_change_nothing() -> None:
    found = read_devcontainer(json.dumps(DANGEROUS))
    assert found.source == Reference(name="a")
    assert found.commands == ()
    assert found.variables == {}
    for key in DANGEROUS.keys() - {"image"}:
        assert any(repr(key) in line for line in found.told), key


@pytest.mark.parametrize(
    "name",
    [
        *(
            "OPENAI_BASE_URL",
            "ANTHROPIC_BASE_URL",
            "OPENAI_API_BASE",
            "https_proxy",
            "PIP_INDEX_URL",
            "NPM_CONFIG_REGISTRY",
        ),
        *(
            "OLLAMA_HOST",
            "GITHUB_TOKEN",
            "SSL_CERT_FILE",
            "LD_PRELOAD",
            "GIT_CONFIG_GLOBAL",
            "BASH_ENV",
            "NODE_OPTIONS",
        ),
        *("HOME", "USER", "TMPDIR", "A=B", "1A", ""),
    ],
)
def test_a_repository_sets_no_endpoint_key_loader_or_variable_of_ours(name: str) -> None:
    found = read_devcontainer(json.dumps({"containerEnv": {name: "x", "FINE": "y"}, "remoteEnv": {name: "x"}}))
    assert found.variables == {"FINE": "y"}
    assert len(found.told) == 2


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[]",
            "null",
            "{",
            '{"image": 1}',
            '{"image": "a b"}',
            '{"containerEnv": []}',
            '{"containerEnv": {"A": 1}}',
        ),
        *('{"onCreateCommand": 1}', '{"onCreateCommand": [1]}', '{"onCreateCommand": {"a": {"b": "c"}}}'),
        *('{"dockerComposeFile": "c.yml"}', "[" * 100_000, '{"a": "' + "x" * 300_000),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str) -> None:
    with pytest.raises(ImageError, match=r"devcontainer\.json|no image name"):
        read_devcontainer(text)


def test_variables_of_the_host_are_never_put_in() -> None:
    found = read_devcontainer(
        '{"containerEnv": {"A": "${localEnv:PATH}${env:USER}"}, "onCreateCommand": "x ${localEnv:PATH}"}'
    )
    assert found.variables == {"A": ""}
    assert found.commands == ("x ",)


@pytest.mark.parametrize("piece", ["/", '"', "/*", " ", "[", ",", '"\\', "//\n", "a", "{,"])
def test_no_text_takes_long_to_refuse(piece: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r"."):
        jsonc.loads(piece * (256 * 1024 // len(piece)))
    assert time.process_time() - began < 2


def test_variables_that_double_each_other_are_refused_and_soon() -> None:
    """Nine lines made a gigabyte, eleven would have been a hundred."""
    doubling = {f"V{number}": f"${{containerEnv:V{number - 1}}}" * 10 for number in range(1, 12)}
    found = read_devcontainer(json.dumps({"containerEnv": {"V0": "x" * 10} | doubling}))
    with pytest.raises(ImageError, match="more than"):
        found.environment({})
    with pytest.raises(ImageError, match="more than"):
        read_devcontainer(json.dumps({"containerEnv": {"A": "${containerEnv:B}" * 10_000}})).environment(
            {"B": "x" * 999}
        )


@pytest.mark.parametrize("piece", ["${a:", "${localEnv:a:", "${a", "${", "$"])
def test_a_command_of_many_half_variables_is_read_in_no_time(piece: str) -> None:
    text = json.dumps({"postCreateCommand": piece * (250_000 // len(piece))})
    started = time.process_time()
    assert read_devcontainer(text).commands
    assert time.process_time() - started < 2


@pytest.mark.parametrize("text", ["a\ud800", "a\0b"])
def test_what_no_program_can_be_given_is_refused(text: str) -> None:
    for asked in ({"postCreateCommand": text}, {"postCreateCommand": ["a", text]}, {"containerEnv": {"A": text}}):
        with pytest.raises(ImageError, match=r"devcontainer\.json"):
            read_devcontainer(json.dumps(asked))
