"""Upload an exported data set to the Hugging Face Hub, or to another host that answers as it does (``HF_ENDPOINT``).

The library `huggingface_hub` is imported on use. It finds the token itself: in ``HF_TOKEN``, or where ``hf auth login``
keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hal import SourceError
from rlenv_formats.card import NAME

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

__all__ = ["Upload", "check_access", "push", "repository_name"]

_EXTRA = "pip install 'rlenv-robot[remote]'"
_PREFIX = "hf://datasets/"
_NOT_OURS = {".gitattributes", NAME}
"""Files of a repository that belong to no other data set: the Hub's own, and the card, which is replaced."""


@dataclass(frozen=True)
class Upload:
    """An uploaded data set.

    Attributes:
        repo_id: name of the repository, with its owner.
        url: address of its page.
        files: number of files of the data set.
        size: their size, bytes.
        tag: the git tag that LeRobot looks for, such as ``v3.0``; empty for other formats.
    """

    repo_id: str
    url: str
    files: int
    size: int
    tag: str


def repository_name(text: str) -> str:
    """Return the name of a repository from a command line, which may be an address that `rlenv_robot` reads.

    Raises:
        SourceError: the Hub allows no such name, or its library is not installed.
    """
    name = text.removeprefix(_PREFIX)
    try:
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id
    except ImportError as error:
        raise SourceError(f"pushing to the Hub needs huggingface_hub ({error}): {_EXTRA}") from None
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise SourceError(
            f"{text!r:.120} names no repository of the Hub; give USER/NAME or ORGANISATION/NAME, each of letters, "
            "digits, '-', '_' and '.' (no '--' or '..'), 96 characters in all"
        ) from None
    return name


def check_access(repo_id: str, private: bool = False) -> str:
    """Return the name of a repository with its owner, after asking the Hub for whom its token is.

    Args:
        repo_id: name of the repository; one without an owner is the user's.
        private: whether others shall not see it.

    Raises:
        SourceError: there is no token or the Hub refuses it, it may only read, the repository is public although
            ``private`` is asked for, or the Hub can't be reached.
    """
    name = repository_name(repo_id)
    with _explained(name):
        return _checked(_api(), name, private)


def push(path: Path, repo_id: str, private: bool = False, replace: bool = False) -> Upload:
    """Upload an exported data set, so that its repository holds the files on disk.

    The repository is created if it is absent. A LeRobot data set gets the git tag of its version, which LeRobot looks
    for. Files that are there already are not sent again: after an interruption, the same call goes on.

    Args:
        path: the folder, or the single file with its card beside it, that ``data export`` wrote.
        repo_id: name of the repository; one without an owner is the user's.
        private: whether a new repository is private; the default of the Hub, or of the organisation, otherwise.
        replace: whether other files in the repository are deleted or overwritten; its history keeps them.

    Raises:
        SourceError: there is no export at the path, the repository has other content, or as for `check_access`.
    """
    name = repository_name(repo_id)
    words = f"{path} {repo_id}{' --private' if private else ''}{' --replace' if replace else ''}"
    with _explained(name, f"the export stays. Then: rlenv-robot data push {words}"), _staged(path) as folder:
        api = _api()
        name = _checked(api, name, private)
        files = _files(folder)
        other = _other_content(api, name, files)
        if other and not replace:
            raise SourceError(
                f"{api.endpoint}/datasets/{name} has other content: {_some(other)}. A mixture of two data sets can't "
                f"be read, so name another repository: rlenv-robot data push {path} REPO_ID. Or --replace gives it the "
                "content of this export; its history keeps the former one"
            )
        api.create_repo(name, repo_type="dataset", private=True if private else None, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            repo_type="dataset",
            folder_path=folder,
            commit_message="Upload a data set exported by rlenv-robot",
            delete_patterns="*" if other else None,
        )
        tag = _version(folder)
        if tag:
            _move_tag(api, name, tag)
        size = sum(file.stat().st_size for file in files.values())
        return Upload(name, f"{api.endpoint}/datasets/{name}", len(files), size, tag)


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(library_name="rlenv-robot")


def _checked(api: HfApi, name: str, private: bool) -> str:
    """Return the name with its owner; raise `SourceError` as `check_access` does."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    if get_token() is None:
        raise SourceError(
            f"no token of {api.endpoint} was found; run `hf auth login`, or set HF_TOKEN, with a token that may write "
            f"({api.endpoint}/settings/tokens)"
        )
    user = api.whoami()
    role = user.get("auth", {}).get("accessToken", {}).get("role")
    if role == "read":
        raise SourceError(
            f"{_token()} may only read; make one with the role `write` ({api.endpoint}/settings/tokens), and run "
            "`hf auth login` or set HF_TOKEN"
        )
    full = name if "/" in name else f"{user['name']}/{name}"
    if private:
        with contextlib.suppress(RepositoryNotFoundError):
            if api.repo_info(full, repo_type="dataset").private is False:
                raise SourceError(
                    f"{api.endpoint}/datasets/{full} exists and is public, so --private would be untrue; make it "
                    "private on its settings page, name another repository, or leave --private out"
                )
    return full


@contextlib.contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """Yield the folder to upload: an exported one, or one with links to a single file and its card."""
    if not path.exists():
        raise SourceError(f"{path} does not exist; write it first: rlenv-robot data export RUNS {path} --to lerobot")
    card = path / NAME if path.is_dir() else path.with_suffix(".md")
    try:
        described = card.read_text(encoding="utf-8").startswith("---\n")
    except (OSError, UnicodeDecodeError):
        described = False
    if not described:
        raise SourceError(
            f"{path} has no data set card ({card}), so it is no export; make one and push it: "
            f"rlenv-robot data export {path} OUT --to lerobot --push REPO_ID"
        )
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory() as place:
        for link, file in ((path.name, path), (NAME, card)):
            (Path(place) / link).symlink_to(file.resolve())
        yield Path(place)


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of an export, by their paths in the repository; not those of git and of the Hub's library."""
    below = {file.relative_to(folder): file for file in sorted(folder.rglob("*")) if file.is_file()}
    return {path.as_posix(): file for path, file in below.items() if path.parts[0] not in (".git", ".cache")}


def _other_content(api: HfApi, name: str, files: dict[str, Path]) -> list[str]:
    """Return the paths in a repository that are no files of the export, or differ from them."""
    from huggingface_hub.errors import RepositoryNotFoundError
    from huggingface_hub.hf_api import RepoFile

    try:
        entries = list(api.list_repo_tree(name, repo_type="dataset", recursive=True))
    except RepositoryNotFoundError:
        return []
    held = [one for one in entries if isinstance(one, RepoFile) and one.path not in _NOT_OURS]
    return [one.path for one in held if one.path not in files or not _is_same(one, files[one.path])]


def _is_same(held: RepoFile, file: Path) -> bool:
    """Return whether a file of a repository has the bytes of a file on disk, by the hash that the Hub tells."""
    if held.size != file.stat().st_size:
        return False
    if held.lfs is not None:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == held.lfs.sha256
    content_bytes = file.read_bytes()  # git's own: those of large files are in LFS
    return hashlib.sha1(b"blob %d\0" % len(content_bytes) + content_bytes).hexdigest() == held.blob_id


def _version(folder: Path) -> str:
    """Return the version of LeRobot's format, which is its tag; empty for another format."""
    try:
        version = json.loads((folder / "meta" / "info.json").read_bytes()).get("codebase_version")
    except (OSError, ValueError, AttributeError):
        return ""
    return version if isinstance(version, str) and re.fullmatch(r"v\d+(\.\d+)*", version) else ""


def _move_tag(api: HfApi, name: str, tag: str) -> None:
    """Put a tag on the newest commit, as `LeRobotDataset.push_to_hub` does (LeRobot 0.4 to 0.6)."""
    from huggingface_hub.errors import RevisionNotFoundError

    with contextlib.suppress(RevisionNotFoundError):
        api.delete_tag(name, tag=tag, repo_type="dataset")
    api.create_tag(name, tag=tag, repo_type="dataset")


def _some(paths: list[str]) -> str:
    return f"{paths[0]} and {len(paths) - 1} more files" if len(paths) > 1 else paths[0]


# -- Errors ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _explained(name: str, then: str = "") -> Iterator[None]:
    """Raise errors of the Hub and its library as `SourceError` with their cause and the next step."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # the library raises those of httpx, of its Rust parts, and its own
        reason = _reason(error, name)
        if reason is None:
            raise
        raise SourceError(f"{reason}; {then}" if then else reason) from error


def _reason(error: Exception, name: str) -> str | None:
    """Return what went wrong and what to do; None for an error that is not of the Hub, its library or the network."""
    from huggingface_hub import constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    hub = constants.ENDPOINT
    causes = list(_causes(error))
    if any(isinstance(one, OfflineModeIsEnabled) for one in causes):
        return "HF_HUB_OFFLINE keeps the Hub's library off the network; unset it"
    if "Invalid metadata in README.md" in str(error):
        return f"{hub} refuses the card: {_line(error)}; mend the lines between the two '---' of README.md"
    answer = next((one for one in causes if isinstance(_status(one), int)), None)
    if answer is not None:
        return _refusal(_status(answer) or 0, _server_text(answer), hub, name)
    if any(type(one).__module__.split(".")[0] in ("httpx", "httpx2", "requests") for one in causes) or any(
        isinstance(one, ConnectionError | TimeoutError) for one in causes
    ):
        return f"{hub} can't be reached ({_line(causes[-1])}); check the network, and HF_ENDPOINT where it is set"
    if isinstance(error, RuntimeError | OSError):
        return f"the upload to {hub}/datasets/{name} failed: {_line(error)}"
    return None


def _refusal(status: int, text: str, hub: str, name: str) -> str:
    """Return the sentence about a status of HTTP that the Hub answered with."""
    if status == 401:
        return (
            f"{hub} refuses {_token()} (401); make one with the role `write` ({hub}/settings/tokens), and run "
            "`hf auth login` or set HF_TOKEN"
        )
    if status == 403:
        return (
            f"{_token()} may not write to {hub}/datasets/{name} (403: {text}); use the name of your own user or "
            "organisation, or a token with the right to write there"
        )
    if status == 404:
        return f"{hub}/datasets/{name} is not there, or {_token()} may not see it (404: {text}); check the spelling"
    if status == 409:
        return f"{hub}/datasets/{name} was changed meanwhile (409: {text}); push again"
    if status == 429 or status >= 500:
        return f"{hub} can't take it now ({status}: {text}); push again later"
    return f"{hub} refuses the data set ({status}: {text})"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _server_text(error: BaseException) -> str:
    return _line(getattr(error, "server_message", None) or error)


def _line(text: object) -> str:
    """Return the text of an error as one line of at most 200 characters."""
    return " ".join(str(text).split())[:200].rstrip(" .") or type(text).__name__


def _token() -> str:
    """Name the place of the token in use."""
    return "the token in HF_TOKEN" if os.environ.get("HF_TOKEN") else "the token that `hf auth login` saved"
