"""Pushing exports to the Hugging Face Hub: a stand-in on this machine takes what huggingface_hub sends."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from hal import SourceError
from plugins.formats.tests.remote.hub_stand_in import ATTRIBUTES, HubHandler, HubStandIn, Repository
from plugins.formats.tests.remote.servers import serve
from recorder.formats.registry import writable_format
from recorder.table.table import Table
from rlenv_formats.hub import check_access, push
from rlenv_robot.cli.main import main

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

Make = Callable[..., Table]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    """A stand-in that this process's huggingface_hub takes for the Hub, with a token that may write."""
    from huggingface_hub import constants

    with serve(HubStandIn(tmp_path / "hub"), handler=HubHandler) as state:
        monkeypatch.setenv("HF_TOKEN", state.token)
        for name, value in {
            "ENDPOINT": state.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": state.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(tmp_path / "hf"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        yield state


@pytest.fixture
def arm(tmp_path: Path, make_table: Make) -> Path:
    """A LeRobot data set of ours."""
    return exported(make_table(), "lerobot", tmp_path / "arm")


def exported(table: Table, name: str, out: Path) -> Path:
    _, write = writable_format(name)
    write(table, out)
    return out


def on_disk(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_bytes_that_arrive_are_those_on_disk_and_come_back(hub: HubStandIn, arm: Path, tmp_path: Path) -> None:
    from huggingface_hub import HfApi, snapshot_download

    upload = push(arm, "ana/arm")
    repository = hub.repositories["ana/arm"]
    assert repository.files == {**on_disk(arm), ".gitattributes": ATTRIBUTES}
    assert repository.tags == {"v3.0": repository.head}
    refs = HfApi().list_repo_refs("ana/arm", repo_type="dataset")  # LeRobot asks so for the versions of a data set
    assert [(tag.name, tag.target_commit) for tag in refs.tags] == [("v3.0", repository.head)]
    assert not repository.private
    assert (upload.url, upload.tag, upload.files) == (f"{hub.url}/datasets/ana/arm", "v3.0", len(on_disk(arm)))
    assert any(method == "PUT" for method, _ in hub.requests), "no file came by LFS"

    fetched = Path(snapshot_download("ana/arm", repo_type="dataset", revision="v3.0", local_dir=tmp_path / "fetched"))
    assert {name: data for name, data in on_disk(fetched).items() if not name.startswith(".")} == on_disk(arm)
    assert rr.open_source(fetched).table.rows.tobytes() == rr.open_source(arm).table.rows.tobytes()


@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="aiohttp is not installed")
def test_our_address_of_what_was_pushed_reads_it(hub: HubStandIn, arm: Path, tmp_path: Path) -> None:
    push(arm, "hf://datasets/ana/arm")
    options = {"endpoint": hub.url, "token": hub.token, "skip_instance_cache": True}
    there = rr.open_source("hf://datasets/ana/arm", cache=tmp_path / "cache", storage_options=options).table
    assert there.rows.tobytes() == rr.open_source(arm).table.rows.tobytes()


def test_a_new_push_moves_the_tag_and_sends_nothing_twice(hub: HubStandIn, arm: Path) -> None:
    push(arm, "ana/arm")
    card = arm / "README.md"
    card.write_text(card.read_text().replace("license: unknown", "license: mit"))
    hub.requests.clear()
    push(arm, "ana/arm")
    repository = hub.repositories["ana/arm"]
    assert b"license: mit" in repository.files["README.md"]
    assert repository.tags == {"v3.0": repository.head}
    assert not any(method == "PUT" for method, _ in hub.requests)


def test_the_users_name_stands_before_a_bare_one(hub: HubStandIn, arm: Path) -> None:
    assert push(arm, "arm", private=True).repo_id == "ana/arm"
    assert hub.repositories["ana/arm"].private
    assert check_access("lab/arm") == "lab/arm"


def test_the_pipeline_of_xet_sends_the_same(hub: HubStandIn, arm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Xet's own storage has no stand-in; here every file comes with the commit.
    pytest.importorskip("hf_xet", reason="huggingface_hub came without hf_xet")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    hub.lfs = ()
    push(arm, "lab/arm")
    assert hub.repositories["lab/arm"].files == {**on_disk(arm), ".gitattributes": ATTRIBUTES}


def test_a_single_file_goes_with_its_card(hub: HubStandIn, make_table: Make, tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="h5py is not installed")
    file = exported(make_table(), "robomimic", tmp_path / "arm.hdf5")
    assert push(file, "ana/arm").tag == ""
    files = hub.repositories["ana/arm"].files
    assert files["arm.hdf5"] == file.read_bytes()
    assert files["README.md"] == (tmp_path / "arm.md").read_bytes()
    assert hub.repositories["ana/arm"].tags == {}


def test_other_content_stays_until_replace_is_asked_for(hub: HubStandIn, arm: Path) -> None:
    other = {".gitattributes": ATTRIBUTES, "meta/info.json": b"{}", "data/chunk-000/file-007.parquet": b"other"}
    hub.repositories["ana/arm"] = repository = Repository()
    first = repository.commit(other)
    with pytest.raises(SourceError, match=r"has other content.* and 1 more files.*--replace"):
        push(arm, "ana/arm")
    assert repository.head == first
    push(arm, "ana/arm", replace=True)
    assert repository.files == {**on_disk(arm), ".gitattributes": ATTRIBUTES}
    assert repository.commits[first] == other


# -- Refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "repo_id", "told"),
    [
        ({"token": "hf_new"}, "ana/arm", ("refuses the token in HF_TOKEN (401)", "hf auth login")),
        ({"role": "read"}, "ana/arm", ("may only read", "role `write`")),
        ({"organisations": ()}, "lab/arm", ("may not write", "don't have the rights", "your own user")),
        ({"answers": {("POST", "commit"): (413, "too large")}}, "ana/arm", ("413", "too large", "data push")),
        ({"answers": {("POST", "tag"): (403, "no tags")}}, "ana/arm", ("403: no tags", "data push")),
        (
            {"answers": {("POST", "validate-yaml"): (400, "no such licence")}},
            "ana/arm",
            ("refuses the card", "no such licence"),
        ),
    ],
)
def test_what_the_hub_refuses(
    hub: HubStandIn, arm: Path, changes: dict[str, Any], repo_id: str, told: tuple[str, ...]
) -> None:
    for name, value in changes.items():
        setattr(hub, name, value)
    before = on_disk(arm)
    with pytest.raises(SourceError) as caught:
        push(arm, repo_id)
    assert all(words in str(caught.value) for words in told), str(caught.value)
    assert "\n" not in str(caught.value)
    assert on_disk(arm) == before


def test_a_public_repository_is_not_called_private(hub: HubStandIn, arm: Path) -> None:
    push(arm, "ana/arm")
    with pytest.raises(SourceError, match="is public, so --private would be untrue"):
        push(arm, "ana/arm", private=True)


@pytest.mark.parametrize("name", ["ana/arm/2", "ana--arm", "https://huggingface.co/datasets/ana/arm", "", "ana/.arm"])
def test_a_name_that_the_hub_does_not_allow(hub: HubStandIn, arm: Path, name: str) -> None:
    with pytest.raises(SourceError, match="names no repository of the Hub; give USER/NAME"):
        push(arm, name)
    assert hub.requests == []


def test_without_a_token(hub: HubStandIn, arm: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with pytest.raises(SourceError, match=r"no token of .* was found; run `hf auth login`, or set HF_TOKEN"):
        push(arm, "ana/arm")
    assert hub.requests == []


def test_without_a_network(hub: HubStandIn, arm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE keeps"):
        push(arm, "ana/arm")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(SourceError, match=r"127.0.0.1:9 can't be reached .*check the network, and HF_ENDPOINT"):
        push(arm, "ana/arm")


def test_what_is_no_export(hub: HubStandIn, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(SourceError, match=r"has no data set card .*--push REPO_ID"):
        push(tmp_path / "runs", "ana/arm")
    with pytest.raises(SourceError, match="does not exist; write it first"):
        push(tmp_path / "none", "ana/arm")
    assert hub.repositories == {}


# -- Commands --------------------------------------------------------------------------------------------------


def test_export_pushes_and_a_refused_token_costs_no_export(
    hub: HubStandIn, runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = ["data", "export", str(runs / "a"), str(tmp_path / "out"), "--to", "parquet", "--push", "ana/arm"]
    hub.token = "hf_new"
    assert main(words) == 2
    assert "refuses the token" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    hub.token = "hf_right"
    assert main([*words, "--private"]) == 0
    told = capsys.readouterr().out
    assert f"{hub.url}/datasets/ana/arm: " in told
    assert "state yours in" in told
    assert hub.repositories["ana/arm"].files == {**on_disk(tmp_path / "out"), ".gitattributes": ATTRIBUTES}


def test_an_export_whose_push_failed_is_pushed_afterwards(
    hub: HubStandIn, runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    hub.answers = {("POST", "commit"): (400, "not now")}
    out = tmp_path / "out"
    assert main(["data", "export", str(runs / "a"), str(out), "--to", "parquet", "--push", "ana/arm"]) == 2
    assert f"the export stays. Then: rlenv-robot data push {out} ana/arm" in capsys.readouterr().err
    hub.answers = {}
    assert main(["data", "push", str(out), "ana/arm"]) == 0
    assert hub.repositories["ana/arm"].files == {**on_disk(out), ".gitattributes": ATTRIBUTES}


def test_private_is_for_a_push(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["data", "export", str(runs / "a"), str(tmp_path / "out"), "--to", "parquet", "--private"]) == 2
    assert "name it: --push REPO_ID" in capsys.readouterr().err


@pytest.mark.slow
def test_hf_endpoint_and_hf_token_of_a_process(hub: HubStandIn, arm: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-c", "import sys; from rlenv_robot.cli.main import main; sys.exit(main())", "data"]

    def run(*words: str) -> str:
        done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "tag v3.0" in run("push", str(arm), "ana/arm")
    assert json.loads(hub.repositories["ana/arm"].files["meta/info.json"])["codebase_version"] == "v3.0"
    assert "3 episodes" in run("show", "hf://datasets/ana/arm")
