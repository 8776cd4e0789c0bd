"""What the engine is asked about images: built, loaded, exported, never fetched unasked; its errors in our words."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox.config import SandboxConfig
from sandbox.container.engine import Engine, _built
from sandbox.container.remote import way_to
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.images.dockerfile import read_dockerfile

pytestmark = pytest.mark.docker
BASE = SandboxConfig().image


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(way_to(os.environ))
    yield engine
    await engine.close()


def context(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


async def drop(engine: Engine, image: str) -> None:
    await engine._call(lambda client: client.images.remove(image, force=True))


async def test_a_built_image_can_be_exported_and_what_it_sets_is_told(engine: Engine, tmp_path: Path) -> None:
    marker = f"marker {os.getpid()}"
    recipe = 'FROM scratch\nARG word\nENV ONE=$word TWO="a=b"\nVOLUME /data\nCOPY file /deep/file\n'
    made = await engine.build_image(
        context(tmp_path / "c.tar", Other=recipe, file=marker), "Other", {"word": "given"}, "none"
    )
    try:
        assert made.startswith("sha256:")
        assert await engine.image_id(made) == made
        found = await engine.image(made)
        assert found is not None
        assert found.volumes == ("/data",)
        env = await engine.image_env(made)
        assert (env["ONE"], env["TWO"]) == ("given", "a=b")
        await engine.export_image(made, tmp_path / "root.tar", 1 << 20)
        with tarfile.open(tmp_path / "root.tar") as tar:
            assert tar.extractfile("deep/file").read().decode() == marker
    finally:
        await drop(engine, made)
    assert await engine.image_id(made) is None


async def test_a_build_runs_without_network_and_tells_its_last_lines(engine: Engine, tmp_path: Path) -> None:
    recipe = f"FROM {BASE}\nUSER 0\nRUN tail -n +3 /proc/net/dev | grep -v ' lo:'; echo interfaces told; exit 3\n"
    with pytest.raises(SandboxError, match=r"(?s)could not be built.*interfaces told.*non-zero code: 3") as caught:
        await engine.build_image(context(tmp_path / "c.tar", Dockerfile=recipe), "Dockerfile", {}, "none")
    assert "eth0" not in str(caught.value)
    with pytest.raises(SandboxError, match=r"could not be built|refused"):
        await engine.build_image(context(tmp_path / "d.tar", Dockerfile="NONSENSE"), "Dockerfile", {}, "none")


async def test_an_engine_builds_what_was_understood_of_a_dockerfile(engine: Engine, tmp_path: Path) -> None:
    text = "ARG I=none\nFROM $I as Made\nUSER 0\nRUN echo 'a  \\\n# no\nb' \\\n > /made\n"
    text += "FROM scratch\nCOPY --from=MADE \\\n/ma\\\nde /x\n"
    recipe = read_dockerfile(text, {"I": BASE, "BUILDKIT_SYNTAX": "evil.example/x"})
    assert recipe.parents == (BASE,)
    made = await engine.build_image(
        context(tmp_path / "c.tar", Dockerfile=recipe.text), "Dockerfile", recipe.args, "none"
    )
    try:
        await engine.export_image(made, tmp_path / "root.tar", 1 << 20)
        with tarfile.open(tmp_path / "root.tar") as tar:
            assert tar.extractfile("x").read() == b"a  b\n"
    finally:
        await drop(engine, made)


async def test_no_more_of_an_image_is_exported_than_there_is_room_for(engine: Engine, tmp_path: Path) -> None:
    """Files with holes are small in an engine, and come out with every zero."""
    files = {"Dockerfile": "FROM scratch\nCOPY big /big\n", "big": "x" * (4 << 20)}
    made = await engine.build_image(context(tmp_path / "c.tar", **files), "Dockerfile", {}, "none")
    try:
        with pytest.raises(SandboxError, match="larger than 2000000 bytes"):
            await engine.export_image(made, tmp_path / "root.tar", 2_000_000)
        assert (tmp_path / "root.tar").stat().st_size <= 2_000_000
    finally:
        await drop(engine, made)


async def test_an_archive_is_loaded_by_its_content(engine: Engine, tmp_path: Path) -> None:
    base = await engine.image_id(BASE)
    assert base is not None
    (tmp_path / "junk.tar").write_bytes(b"not an archive" * 100)
    with pytest.raises(SandboxError):
        await engine.load_image(tmp_path / "junk.tar")
    made = await engine.build_image(
        context(tmp_path / "c.tar", Dockerfile="FROM scratch\nCOPY f /f\n", f=str(os.getpid())),
        "Dockerfile",
        {},
        "none",
    )

    def save(client) -> None:
        with (tmp_path / "image.tar").open("wb") as file:
            for piece in client.images.get(made).save():
                file.write(piece)

    await engine._call(save)
    await drop(engine, made)
    try:
        assert await engine.load_image(tmp_path / "image.tar") == made
    finally:
        await drop(engine, made)


async def test_what_is_not_there_is_told_with_the_mend(engine: Engine) -> None:
    with pytest.raises(SandboxUnavailableError, match="mend: docker pull agent-swarm/none:1"):
        await engine.image_env("agent-swarm/none:1")
    with pytest.raises(SandboxError):
        await engine.pull_image("registry.invalid/none:1")
    for call in (engine.kill, engine.processes, engine.first_process):
        with pytest.raises(SandboxLostError, match="no-such-container is gone"):
            await call("no-such-container")
    await engine.remove("no-such-container")
    with pytest.raises(SandboxLostError, match="no-such-container is gone"):
        await engine.start_exec("no-such-container", ["true"], "70000", {})
    assert await engine.volumes("agent-swarm.none") == {}
    with pytest.raises(SandboxLostError):
        await engine.remove_volume("agent-swarm-none")


def test_a_build_that_goes_on_for_ever_is_given_up() -> None:
    def steps() -> Iterator[dict[str, str]]:
        while True:
            yield {"stream": "more\n" * 10_000}

    with pytest.raises(SandboxError, match=r"(?s)more\nmore\n.*not done after 3600 s"):
        _built(steps(), time.monotonic() + 0.1)
