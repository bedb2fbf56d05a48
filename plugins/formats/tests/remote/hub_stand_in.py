"""A stand-in for the Hugging Face Hub on this machine that takes data sets: the requests of huggingface_hub 2.4."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from plugins.formats.tests.remote.servers import FileServer, _Handler

ATTRIBUTES = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"


@dataclass
class Repository:
    """A repository: its commits, each with all its files, and the tags on them.

    Attributes:
        private: whether others don't see it.
        commits: id -> path -> content; the newest is the last.
        tags: name -> id of a commit.
    """

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.head]

    def commit(self, files: dict[str, bytes]) -> str:
        oid = hashlib.sha1(f"{len(self.commits)}{id(self)}".encode()).hexdigest()
        self.commits[oid] = dict(files)
        return oid

    def resolve(self, revision: str) -> str | None:
        """Return the id of a commit by that id, a tag, or ``main``."""
        oid = self.head if revision == "main" else self.tags.get(revision, revision)
        return oid if oid in self.commits else None


@dataclass
class HubStandIn(FileServer):
    """The state of the stand-in, for `servers.serve`.

    Attributes:
        token: the only token that it takes.
        user: whom the token is for.
        organisations: where the user may write too.
        role: what the token may do: ``read`` or ``write``.
        lfs: suffixes of files that are uploaded by LFS; all others come with the commit.
        answers: (method, part of a path) -> status and text that it answers with instead.
        repositories: by name.
        objects: the contents that came by LFS, by SHA-256.
        requests: method and path of each request.
    """

    token: str = "hf_right"
    user: str = "ana"
    organisations: tuple[str, ...] = ("lab",)
    role: str = "write"
    lfs: tuple[str, ...] = (".parquet", ".mp4", ".hdf5")
    answers: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def uploads(self, path: str) -> bool:
        return path.endswith(self.lfs)

    def save(self, name: str, folder: Path) -> None:
        """Write the newest files of a repository into a folder."""
        shutil.rmtree(folder, ignore_errors=True)
        for path, content in self.repositories[name].files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)


class HubHandler(_Handler):
    """Answers as the Hub does."""

    _hub: HubStandIn

    def do_PUT(self) -> None:
        self._answer(True)

    def do_POST(self) -> None:
        self._answer(True)

    def do_DELETE(self) -> None:
        self._answer(True)

    def _answer(self, content: bool) -> None:
        hub = self._hub = self._state  # type: ignore[assignment]
        assert isinstance(hub, HubStandIn)
        url = urlparse(self.path)
        path = unquote(url.path).strip("/")
        parts, query = path.split("/"), parse_qs(url.query)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        hub.requests.append((self.command, path))
        for (method, part), (status, text) in hub.answers.items():
            if method == self.command and part in path:
                return self._json(status, {"error": text, "errors": [{"message": text}]}, content)
        if parts[0] == "lfs":
            return self._put_object(parts[1], body)
        if self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._json(401, {"error": "Invalid username or password."}, content)
        match (self.command, *parts):
            case ("GET", "api", "whoami-v2"):
                orgs = [{"name": name} for name in hub.organisations]
                access = {"accessToken": {"role": hub.role, "displayName": "test"}}
                return self._json(200, {"type": "user", "name": hub.user, "orgs": orgs, "auth": access}, content)
            case ("POST", "api", "repos", "create"):
                return self._create(json.loads(body))
            case ("POST", "api", "validate-yaml"):
                return self._json(200, {"errors": [], "warnings": []}, True)
            case (_, "api", "datasets", owner, name, *rest):
                return self._repository(f"{owner}/{name}", rest, query, body, content)
            case ("POST", "datasets", owner, name, "info", "lfs", "objects", "batch"):
                return self._batch(json.loads(body))
            case (_, "datasets", owner, name, "resolve", revision, *rest):
                return self._file_of(f"{owner}/{name}", revision, "/".join(rest), content)
        return self._json(404, {"error": f"no such place: {self.command} {path}"}, content)

    def _create(self, wanted: dict[str, Any]) -> None:
        hub = self._hub
        owner = wanted.get("organization") or hub.user
        name = f"{owner}/{wanted['name']}"
        if wanted["type"] != "dataset":
            return self._json(400, {"error": "the tests push data sets alone"}, True)
        if owner not in (hub.user, *hub.organisations):
            text = f'You don\'t have the rights to create a dataset under the namespace "{owner}"'
            return self._json(403, {"error": text}, True)
        url = f"{hub.url}/datasets/{name}"
        if name in hub.repositories:
            return self._json(409, {"error": "You already created this dataset repo", "url": url}, True)
        hub.repositories[name] = Repository(wanted.get("visibility") == "private")
        hub.repositories[name].commit({".gitattributes": ATTRIBUTES})
        return self._json(200, {"url": url, "name": name}, True)

    def _repository(self, name: str, rest: list[str], query: dict[str, list[str]], body: bytes, content: bool) -> None:
        repository = self._hub.repositories.get(name)
        if repository is None:
            return self._json(404, {"error": "Repository not found"}, content, {"X-Error-Code": "RepoNotFound"})
        match (self.command, *rest):
            case ("DELETE", "tag", tag):
                if tag not in repository.tags:
                    return self._no_revision(content)
                del repository.tags[tag]
                return self._json(200, {}, True)
            case ("POST", "tag", revision):
                tag = json.loads(body)["tag"]
                if tag in repository.tags:
                    return self._json(409, {"error": "Tag reference exists already"}, True)
                repository.tags[tag] = repository.resolve(revision) or ""
                return self._json(200, {}, True)
            case ("POST", "preupload", "main"):
                return self._preupload(repository, json.loads(body)["files"])
            case ("POST", "commit", "main"):
                return self._commit(name, repository, body)
            case ("GET", "refs"):
                refs = [("branches", "heads", "main", repository.head)]
                refs += [("tags", "tags", tag, oid) for tag, oid in repository.tags.items()]
                listed: dict[str, Any] = {"branches": [], "tags": [], "converts": []}
                for kind, place, ref, oid in refs:
                    listed[kind].append({"name": ref, "ref": f"refs/{place}/{ref}", "targetCommit": oid})
                return self._json(200, listed, content)
            case ("GET", "tree", revision, *below):
                return self._tree(repository, revision, "/".join(below), query, content)
            case ("POST", "paths-info", revision):
                return self._paths(repository, revision, body)
            case ("GET",) | ("GET", "revision", _):
                oid = repository.resolve(rest[1] if rest else "main")
                if oid is None:
                    return self._no_revision(content)
                siblings = [{"rfilename": path} for path in repository.commits[oid]]
                about = {"id": name, "sha": oid, "private": repository.private, "siblings": siblings, "tags": []}
                return self._json(200, about, content)
        return self._json(404, {"error": f"no such place: {self.command} {rest}"}, content)

    def _preupload(self, repository: Repository, files: list[dict[str, Any]]) -> None:
        answers = []
        for file in files:
            oid = (
                self._entry(file["path"], repository.files[file["path"]])["oid"]
                if file["path"] in repository.files
                else None
            )
            mode = "lfs" if self._hub.uploads(file["path"]) else "regular"
            answers.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self._json(200, {"files": answers}, True)

    def _batch(self, wanted: dict[str, Any]) -> None:
        objects = []
        for one in wanted["objects"]:
            answer = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self._hub.objects:
                answer["actions"] = {"upload": {"href": f"{self._hub.url}/lfs/{one['oid']}"}}
            objects.append(answer)
        self._json(200, {"transfer": "basic", "objects": objects}, True)

    def _put_object(self, oid: str, body: bytes) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            return self._json(400, {"error": "the content has another checksum"}, True)
        self._hub.objects[oid] = body
        return self._json(200, {}, True)

    def _commit(self, name: str, repository: Repository, body: bytes) -> None:
        files = dict(repository.files)
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            match item["key"]:
                case "file":
                    assert value["encoding"] == "base64"
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    if value["oid"] not in self._hub.objects:
                        return self._json(400, {"error": f"no LFS object {value['oid']}"}, True)
                    files[value["path"]] = self._hub.objects[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        oid = repository.commit(files)
        url = f"{self._hub.url}/datasets/{name}/commit/{oid}"
        return self._json(200, {"commitUrl": url, "commitOid": oid, "hookOutput": ""}, True)

    def _tree(
        self, repository: Repository, revision: str, below: str, query: dict[str, list[str]], content: bool
    ) -> None:
        oid = repository.resolve(revision)
        if oid is None:
            return self._no_revision(content)
        files = {
            path: one for path, one in repository.commits[oid].items() if not below or path.startswith(f"{below}/")
        }
        if not files:
            return self._json(404, {"error": "Entry not found"}, content, {"X-Error-Code": "EntryNotFound"})
        if query.get("recursive", [""])[0].lower() in ("1", "true"):
            return self._json(200, [self._entry(path, one) for path, one in files.items()], content)
        start = len(below) + 1 if below else 0
        folders = {f"{path[:start]}{path[start:].partition('/')[0]}" for path in files if "/" in path[start:]}
        entries = [{"type": "directory", "oid": "1" * 40, "size": 0, "path": path} for path in sorted(folders)]
        return self._json(
            200, entries + [self._entry(path, one) for path, one in files.items() if "/" not in path[start:]], content
        )

    def _paths(self, repository: Repository, revision: str, body: bytes) -> None:
        text = body.decode()
        paths = json.loads(text)["paths"] if text.startswith("{") else parse_qs(text).get("paths", [])
        oid = repository.resolve(revision)
        files = repository.commits[oid] if oid else {}
        folders = {path for path in paths if any(file.startswith(f"{path}/") for file in files)}
        found = [self._entry(path, files[path]) for path in paths if path in files]
        self._json(
            200, found + [{"type": "directory", "oid": "1" * 40, "size": 0, "path": one} for one in folders], True
        )

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        sha256 = hashlib.sha256(content).hexdigest()
        if self._hub.uploads(path) and content:
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
            lfs = {"oid": sha256, "size": len(content), "pointerSize": len(pointer)}
            return {"type": "file", "oid": _blob(pointer), "size": len(content), "path": path, "lfs": lfs}
        return {"type": "file", "oid": _blob(content), "size": len(content), "path": path}

    def _file_of(self, name: str, revision: str, path: str, content: bool) -> None:
        repository = self._hub.repositories.get(name)
        oid = repository.resolve(revision) if repository else None
        if repository is None or oid is None:
            return self._no_revision(content)
        data = repository.commits[oid].get(path)
        if data is None:
            return self._json(404, {"error": "Entry not found"}, content, {"X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{self._entry(path, data)["oid"]}"', "X-Repo-Commit": oid, "Accept-Ranges": "bytes"}
        status, wanted = 200, self.headers.get("Range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            stop = min(int(last) + 1 if last else len(data), len(data))
            headers["Content-Range"] = f"bytes {first}-{stop - 1}/{len(data)}"
            data, status = data[int(first) : stop], 206
        return self._send(status, data, content, headers)

    def _no_revision(self, content: bool) -> None:
        self._json(404, {"error": "Revision not found"}, content, {"X-Error-Code": "RevisionNotFound"})

    def _json(self, status: int, value: Any, content: bool, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), content, {"Content-Type": "application/json", **(headers or {})})


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
