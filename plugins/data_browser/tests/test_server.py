"""The page's server: questions, labels and selections, and who may not ask them."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from hal import SourceError
from plugins.data_browser.tests.conftest import record
from real.protocol.keys import Role
from recorder.log.labels import add_labels, read_labels
from recorder.names import LABELS, LOG_NAME
from rlenv_episode_index.manifest import read_selection
from rlenv_operate.console.access import new_token
from rlenv_robot.data.episode_columns import EpisodeColumns
from rlenv_robot.source import open_source
from tests.fakes import until

pytest.importorskip("rlenv_data_browser.server", reason="the extra 'console' is not installed")

Serve = Callable[..., Any]


class Page:
    """A page's requests, without a browser."""

    def __init__(self, server: Any, token: str | None = None, **headers: str) -> None:
        self._base = f"http://127.0.0.1:{server.port}"
        own = token or server.url.partition("#token=")[2]
        self._headers = {"authorization": f"Bearer {own}", "origin": self._base, **headers}

    def ask(self, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(f"{self._base}/api/{path}?{urlencode(query)}", data, self._headers)
        try:
            with urlopen(request, timeout=30) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if answer.headers["content-type"].endswith(
                    "json"
                ) else content
        except HTTPError as error:
            return error.code, json.loads(error.read())

    def get(self, path: str, body: Any = None, **query: Any) -> Any:
        status, answer = self.ask(path, body, **query)
        assert status == 200, answer
        return answer

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.get("episodes", **query)["rows"]
        return rows


def test_questions_are_answered_in_parts_with_counts(run: Path, serve: Serve) -> None:
    record(run.parent / "second", 3)
    page = Page(serve(run.parent))
    about = page.get("about")
    assert (about["sets"], about["total"], about["may_write"]) == (2, 7, True)
    answer = page.get("episodes", text="cup", limit=2)
    assert (answer["total"], len(answer["rows"])) == (4, 2)
    assert [row["episode"] for row in page.rows(text="cup", limit=2, offset=2)] == [0, 2]
    assert [row["success"] for row in page.rows(success="no")] == [0, 0, 0]
    assert [row["episode"] for row in page.rows(where="run = 'first'", order="began", direction="desc")] == [3, 2, 1, 0]
    assert page.get("values")["values"]["source"] == {"expert": 5, "random": 2}
    key = page.rows()[0]["key"]
    assert page.get("episode", key=key)["record"]["task_text"] == "lift the cup"
    assert page.get("tile", key=key).startswith(b'{"frames":25')
    assert page.get("curves", key=key)["frames"] == 25
    frames = page.get("frames", key=key, camera="top", first=3, count=2, step=1, width=32)
    size = int.from_bytes(frames[:4], "big")
    assert int.from_bytes(frames[4 + size : 8 + size], "big") == len(frames) - 8 - size


def test_returns_are_computed_when_a_condition_needs_them(run: Path, serve: Serve) -> None:
    page = Page(serve(run))
    assert page.get("episodes", where="return > 0.5")["waits"] == "rows"
    until(lambda: page.get("episodes", where="return > 0.5")["total"] == 4)
    assert page.get("episodes", where="return > 0.5")["waits"] == ""


def test_labels_are_written_beside_the_log_seen_by_all_pages_and_undone(run: Path, serve: Serve) -> None:
    log = (run / LOG_NAME).read_bytes()
    first, second = Page(serve(run)), Page(serve(run))
    keys = [row["key"] for row in first.rows()]
    version = second.get("state")["version"]
    answer = first.get("label", {"keys": keys[1:3], "label": {"verdict": "discard"}})
    first.get("label", {"query": {"text": "cup"}, "label": {"tag": ["odd", "late"]}})
    assert answer["done"] == 2
    until(lambda: second.get("state")["version"] > version)
    rows = second.rows()
    assert [row["verdict"] for row in rows] == [None, "discard", "discard", None]
    assert [row["tags"] for row in rows] == [["late", "odd"], [], ["late", "odd"], []]
    assert second.get("values")["values"]["tags"] == {"late": 2, "odd": 2}
    assert first.get("undo", {"undo": answer["undo"]})["done"] == 2
    assert [(row["verdict"], row["success"]) for row in first.rows()] == [(None, 1), (None, 0), (None, 1), (None, 0)]
    assert first.rows()[2]["tags"] == ["late", "odd"]
    status, refused = first.ask("undo", {"undo": answer["undo"]})
    assert (status, "undone already" in refused["error"]) == (400, True)
    assert (run / LOG_NAME).read_bytes() == log
    assert {path.name for path in run.iterdir() if path.suffix} - {"chain.jsonl"} <= {LOG_NAME, LABELS}


def test_labels_by_another_program_reach_the_page(run: Path, serve: Serve) -> None:
    page = Page(serve(run))
    version = page.get("state")["version"]
    add_labels(run, [1], {"note": "said elsewhere"}, "ben")
    until(lambda: page.get("state")["version"] > version)
    assert page.rows()[1]["note"] == "said elsewhere"


def test_without_a_token_nothing_is_shown_and_another_origin_writes_nothing(run: Path, serve: Serve) -> None:
    server = serve(run)
    key = Page(server).rows()[0]["key"]
    body = {"keys": [key], "label": {"verdict": "discard"}}
    for path in ("about", "episodes", "tile", "state", "values"):
        assert Page(server, "guess").ask(path, key=key)[0] == 401
        assert Page(server, origin="http://evil.example").ask(path, key=key)[0] == 403
    assert Page(server, "guess").ask("label", body)[0] == 401
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}", ""):
        assert Page(server, origin=origin).ask("label", body)[0] == 403
    assert read_labels(run) == {}


def test_a_token_that_may_look_does_not_label(run: Path, serve: Serve, tmp_path: Path) -> None:
    tokens = {role: new_token(tmp_path / "tokens", f"p-{role.value}", role) for role in Role}
    server = serve(run, tokens=tmp_path / "tokens")
    key = Page(server, tokens[Role.WATCH]).rows()[0]["key"]
    body = {"keys": [key], "label": {"note": "x"}}
    assert Page(server, tokens[Role.WATCH]).ask("label", body)[0] == 403
    assert Page(server, tokens[Role.WATCH]).ask("select", {"name": "a", "keys": [key]})[0] == 403
    assert Page(server, tokens[Role.STOP]).ask("episodes")[0] == 403
    Page(server, tokens[Role.MOVE]).get("label", body)
    assert read_labels(run)[0]["who"] == "p-move"
    assert not (tmp_path / "selections").exists()


@pytest.mark.parametrize(
    ("path", "body", "query"),
    [
        ("episodes", None, {"where": "steps >"}), ("episodes", None, {"where": "1; drop table x"}),
        ("episodes", None, {"order": "nothing"}), ("episodes", None, {"limit": "many"}),
        ("tile", None, {"key": "/etc/passwd#0"}), ("tile", None, {}), ("frames", None, {"key": "x", "first": "-1"}),
        ("label", {"keys": ["/etc#0"], "label": {"note": "x"}}, {}), ("label", {"keys": [], "label": {"note": ""}}, {}),
        ("label", {"keys": 3}, {}), ("label", b"{", {}), ("label", b"[]", {}), ("compute", {"group": "magic"}, {}),
        ("select", {"name": "../out", "keys": ["x"]}, {}), ("label", b" " * (5 << 20), {}),
    ],
)  # fmt: skip
def test_a_wrong_question_is_one_line_and_the_server_goes_on(
    run: Path, serve: Serve, path: str, body: Any, query: dict[str, str]
) -> None:
    page = Page(serve(run))
    status, answer = page.ask(path, body, **query)
    assert (status, "\n" in answer["error"]) == (400, False)
    assert page.get("episodes")["total"] == 4


def test_labels_of_wrong_values_are_refused(run: Path, serve: Serve) -> None:
    page = Page(serve(run))
    key = page.rows()[0]["key"]
    for label in ({"verdict": "great"}, {"tag": "word"}, {"tag": ["a,b"]}, {"colour": "red"}, {}):
        assert page.ask("label", {"keys": [key], "label": label})[0] == 400, label
    assert read_labels(run) == {}


def test_a_selection_is_saved_and_opened_with_its_cuts(run: Path, serve: Serve, tmp_path: Path) -> None:
    page = Page(serve(run))
    keys = [row["key"] for row in page.rows()]
    page.get("label", {"keys": keys[:1], "label": {"verdict": "discard"}})
    answer = page.get("select", {"name": "cups", "query": {"text": "cup"}, "cuts": {keys[2]: [10]}})
    assert answer["episodes"] == 1, "the discarded one is left out"
    data = open_source(answer["path"])
    assert [(info["episode"], info["part"]) for info in data.table.episodes] == [(2, 0), (2, 1)]
    assert data.transitions.lengths.tolist() == [9, 14]
    marked = page.get("select", {"name": "marked", "keys": keys[:2]})
    assert [info["episode"] for info in open_source(marked["path"]).table.episodes] == [0, 1]
    assert page.ask("select", {"name": "marked", "keys": keys[:2]})[0] == 400, "nothing is replaced"
    assert page.ask("select", {"name": "x", "keys": keys, "cuts": {keys[0]: ["a"]}})[0] == 400
    assert sorted(path.name for path in (tmp_path / "selections").iterdir()) == [
        "cups.selection.json", "marked.selection.json",
    ]  # fmt: skip


def test_a_page_of_a_selection_has_its_episodes_and_cuts_and_labels_go_to_their_sets(
    run: Path, serve: Serve, tmp_path: Path
) -> None:
    other = record(run.parent / "second", 3)
    page = Page(serve(run.parent))
    keys = [row["key"] for row in page.rows()]
    chosen = [keys[1], keys[2], keys[5]]
    path = Path(page.get("select", {"name": "some", "keys": chosen, "cuts": {keys[2]: [10]}})["path"])
    narrow = Page(serve(path))
    about = narrow.get("about")
    assert (about["paths"], about["total"], about["sets"], about["cuts"]) == ([str(path)], 3, 2, {keys[2]: [10]})
    assert [row["key"] for row in narrow.rows()] == chosen
    assert narrow.get("episodes", where="steps > 0")["total"] == 3
    assert narrow.get("values")["values"]["source"] == {"expert": 3}
    narrow.get("label", {"query": {}, "label": {"note": "seen"}})
    assert (sorted(read_labels(run)), sorted(read_labels(other))) == ([1, 2], [1])
    assert [row["note"] for row in narrow.rows()] == ["seen"] * 3
    saved = narrow.get("select", {"name": "again", "query": {}})
    assert read_selection(Path(saved["path"])).parents == (read_selection(path).digest,)
    assert saved["episodes"] == 3
    wider = Page(serve(path, other))
    assert [row["key"] for row in wider.rows()] == [*keys[4:], keys[1], keys[2]], "a set that is named too is whole"
    shutil.rmtree(other)
    with pytest.raises(SourceError, match="does not exist"):
        serve(path)


def test_columns_of_packages_are_computed_in_the_background(
    run: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(table: Any) -> dict[str, list[Any]]:
        time.sleep(0.3)
        return {"score": [0.5] * len(table.episodes), "findings": ["blank gap", *["gap"] * (len(table.episodes) - 1)]}

    columns = EpisodeColumns({"score": "REAL", "findings": "TEXT"}, compute)
    monkeypatch.setattr("rlenv_episode_index.index.column_groups", lambda: ["quality"])
    monkeypatch.setattr("rlenv_episode_index.index.load_columns", lambda _: columns)
    page = Page(serve(run))
    assert "quality" in page.get("about")["groups"]
    page.get("compute", {"group": "quality"})
    page.get("compute", {"group": "quality"})  # the second click
    assert page.ask("compute", {"group": "rows"})[0] == 400, "something else is computed"
    assert page.get("state")["job"]["running"]
    until(lambda: not page.get("state")["job"]["running"])
    assert page.get("episodes", finding="blank")["total"] == 1
    assert page.get("values")["values"]["findings"] == {"gap": 4, "blank": 1}
    assert page.rows()[0]["score"] == 0.5


def test_a_package_that_fails_is_said(run: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = EpisodeColumns({"score": "REAL"}, lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr("rlenv_episode_index.index.column_groups", lambda: ["quality"])
    monkeypatch.setattr("rlenv_episode_index.index.load_columns", lambda _: columns)
    page = Page(serve(run))
    page.get("compute", {"group": "quality"})
    until(lambda: not page.get("state")["job"]["running"])
    assert "division" in page.get("state")["job"]["error"]
    assert page.get("episodes")["total"] == 4


def test_a_set_that_cannot_be_read_is_a_note_beside_the_others(run: Path, serve: Serve, tmp_path: Path) -> None:
    (run.parent / "broken").mkdir()
    (run.parent / "broken" / LOG_NAME).write_bytes(b"no log")
    about = Page(serve(run.parent)).get("about")
    assert about["total"] == 4
    assert any("broken" in note and "\n" not in note for note in about["notes"])
    with pytest.raises(SourceError, match="does not exist"):
        serve(tmp_path / "nothing")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_set_that_cannot_be_written_is_labelled_elsewhere(
    run: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run.chmod(0o500)
    page = Page(serve(run))
    page.get("label", {"keys": [page.rows()[0]["key"]], "label": {"note": "x"}})
    assert page.rows()[0]["note"] == "x"
    run.chmod(0o700)


def test_the_page_is_small_and_has_no_other_origin(run: Path, serve: Serve) -> None:
    server, size = serve(run), 0
    for name in ("", "browse.js", "grid.js", "viewer.js", "draw.js", "api.js", "words.js", "browse.css", "icon.svg"):
        request = Request(f"http://127.0.0.1:{server.port}/{name}", headers={"Accept-Encoding": "gzip"})
        with urlopen(request, timeout=10) as answer:
            size += len(answer.read())
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        with urlopen(f"http://127.0.0.1:{server.port}/{name}", timeout=10) as answer:
            plain = answer.read().decode()
        assert "https://" not in plain
        assert plain.count("http://") == plain.count("http://www.w3.org/2000/svg")
    assert size <= 60_000
