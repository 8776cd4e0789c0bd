"""What is special about the bare repository: refs, records, and crashes between the two."""

from __future__ import annotations

import pytest

from broker.errors import AbsentError, ConfigError, ConflictError, ForgeError
from broker.forge.base import Order
from broker.server import build


def test_a_pull_request_is_a_ref_that_git_itself_can_show(house):
    receipt = house.offer(house.good)
    assert house.branches()["refs/pull/1/head"] == receipt.commit


def test_nothing_but_branch_and_pull_ref_is_new(house):
    before = set(house.branches())
    house.offer(house.good)
    assert set(house.branches()) - before == {"refs/heads/swarm/t1", "refs/pull/1/head"}


def test_a_record_without_its_ref_gets_it_back(house):
    receipt = house.offer(house.good)
    house.origin.git("update-ref", "-d", "refs/pull/1/head")
    house.service.desk.wards.get("demo").forge.open(_order(house, receipt))
    assert house.branches()["refs/pull/1/head"] == receipt.commit


def _order(house, receipt):
    pull = house.service.pulls.show("demo", 1).pull
    return Order.model_validate({name: getattr(pull, name) for name in Order.model_fields})


def test_a_damaged_record_is_named(house):
    house.offer(house.good)
    (house.config.state / "pulls" / "demo" / "1.json").write_text("{")
    with pytest.raises(ForgeError, match="record of pull request 1 is damaged"):
        house.service.pulls.show("demo", 1)


def test_a_half_written_record_is_not_seen(house):
    folder = house.config.state / "pulls" / "demo"
    assert not folder.exists()  # looking makes nothing
    folder.mkdir(parents=True)
    (folder / ".1.draft").write_text("{")
    assert house.service.pulls.listing("demo").pulls == ()
    house.offer(house.good)
    assert house.service.pulls.show("demo", 1).pull.number == 1


def test_a_merge_that_was_cut_off_before_its_record_can_be_repeated(house):
    receipt = house.offer(house.good)
    house.origin.git("update-ref", "refs/heads/main", receipt.commit)
    merged = house.service.pulls.merge("demo", 1, by_uid=0)
    assert (merged.state, merged.merged_commit) == ("merged", receipt.commit)


def test_a_merge_onto_a_base_that_is_gone_is_refused(house):
    house.offer(house.good)
    house.origin.git("update-ref", "-d", "refs/heads/main")
    with pytest.raises(ConflictError, match="is gone"):
        house.service.pulls.merge("demo", 1, by_uid=0)


def test_an_unknown_pull_request_is_named(house):
    with pytest.raises(AbsentError, match="demo has no pull request 9"):
        house.service.pulls.show("demo", 9)


def test_a_diff_runs_no_driver_of_the_repositorys(house, tmp_path):
    house.origin.git("config", "diff.evil.command", f"touch {tmp_path}/ran")
    house.origin.git("config", "diff.external", f"touch {tmp_path}/ran")
    house.origin.git("config", "diff.evil.textconv", f"touch {tmp_path}/ran")
    (house.origin.path / "info").mkdir(exist_ok=True)
    (house.origin.path / "info" / "attributes").write_text("* diff=evil\n")
    house.offer(house.good)
    assert "min(x, high)" in house.service.pulls.show("demo", 1).diff
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("what", ["absent", "no repository"])
def test_a_repository_that_cannot_be_used_stops_the_start_with_the_mend(settings_for, tmp_path, what):
    config = settings_for(tmp_path)
    config.state.mkdir(mode=0o700)
    if what == "no repository":
        (tmp_path / "demo.git").mkdir()
    with pytest.raises(ConfigError) as caught:
        build(config)
    assert "repositories.demo.path" in str(caught.value)
    assert "git init --bare" in caught.value.mend
