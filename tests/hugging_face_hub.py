"""A Hugging Face hub on loopback, for the hub's own client: the calls with which it downloads a snapshot.

    GET  /api/models/ID/revision/REVISION            the commit of a branch, a tag or a commit
    GET  /api/models/ID/tree/COMMIT?recursive=true   its files, in pages that a Link header joins
    HEAD, GET  /ID/resolve/COMMIT/FILE               a small file by way of a redirect to another path of the hub; a
                                                     large one by way of one to another host, the CDN, which must not
                                                     see the token

Errors have the hub's statuses and its X-Error-Code and X-Error-Message. The shapes are those that huggingface_hub 2.4
reads (hf_api.py, file_download.py, utils/_http.py); the real hub was never asked.
"""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PAGE = 5
"""Files in a page of a listing; the hub's have 1000."""
LARGE = (".safetensors", ".bin", ".onnx", ".h5", ".msgpack", ".spm")
"""The files that the hub keeps in its large storage, behind its CDN."""


@dataclass
class Repository:
    """A model's repository. `tokens` may read it; empty: everybody may."""

    files: dict[str, bytes]
    commit: str = COMMIT
    tokens: set[str] = field(default_factory=set)
    gated: bool = False


@dataclass
class Hub:
    repositories: dict[str, Repository] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    """The files that were downloaded, by their repository's names."""
    expired: set[str] = field(default_factory=set)
    """Expired tokens."""
    tokens_at_cdn: list[str] = field(default_factory=list)
    url: str = ""
    cdn: str = ""

    def add(self, name: str, folder: Path, **options: Any) -> Repository:
        """Adds a repository with all files of a folder."""
        files = {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
        self.repositories[name] = Repository(files=files, **options)
        return self.repositories[name]


@contextlib.contextmanager
def hugging_face_hub(cache: Path) -> Iterator[Hub]:
    """Serves an empty hub, and lets the client in this process ask it and keep its downloads in `cache`."""
    hub = Hub()
    with contextlib.ExitStack() as stack:
        hub.url, hub.cdn = (stack.enter_context(_serving(hub, each)) for each in (_HubHandler, _CdnHandler))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
        patch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{_TEMPLATE}")
        patch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(cache / "token"))
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        patch.delenv("HF_TOKEN", raising=False)
        yield hub


_TEMPLATE = "{repo_id}/resolve/{revision}/{filename}"


@contextlib.contextmanager
def _serving(hub: Hub, handler: "type[_Handler]") -> Iterator[str]:
    bound = type(handler.__name__, (handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        """Prints nothing."""

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def send(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _HubHandler(_Handler):
    def answer(self) -> None:
        if self.token in self.hub.expired:
            self._refuse(401, "", "Invalid credentials in Authorization header")
            return
        asked = urlsplit(self.path)
        path = unquote(asked.path)
        if called := re.fullmatch(r"/api/models/(.+)/(revision|tree)/([^/]+)", path):
            self._api(called[1], called[2], called[3], parse_qs(asked.query))
        elif called := re.fullmatch(r"/api/resolve-cache/models/(.+)/([0-9a-f]{40})/(.+)", path):
            self._file(called[1], called[2], called[3], cached=True)
        elif called := re.fullmatch(r"/(.+)/resolve/([^/]+)/(.+)", path):
            self._file(called[1], called[2], called[3], cached=False)
        else:
            self.send(404)

    def _api(self, name: str, what: str, revision: str, query: dict[str, list[str]]) -> None:
        repository = self._readable(name, listing=True)
        if repository is None:
            return
        if revision not in ("main", repository.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        if what == "revision":
            siblings = [{"rfilename": file} for file in repository.files]
            self.send(200, json.dumps({"id": name, "sha": repository.commit, "siblings": siblings}).encode())
            return
        begin = int(query.get("cursor", ["0"])[0])
        files = sorted(repository.files.items())
        page = [_listed(file, content) for file, content in files[begin : begin + PAGE]]
        more = f"{self.hub.url}{urlsplit(self.path).path}?recursive=True&cursor={begin + PAGE}"
        links = {"Link": f'<{more}>; rel="next"'} if begin + PAGE < len(files) else {}
        self.send(200, json.dumps(page).encode(), links)

    def _file(self, name: str, revision: str, file: str, *, cached: bool) -> None:
        repository = self._readable(name)
        if repository is None:
            return
        content = repository.files.get(file)
        if content is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        known = {"X-Repo-Commit": repository.commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        if file.endswith(LARGE):
            linked = {
                "X-Linked-Size": str(len(content)),
                "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
            }
            self.send(302, headers={"Location": f"{self.hub.cdn}/{name}/{file}", **known, **linked})
        elif not cached:
            cached_at = f"/api/resolve-cache/models/{name}/{revision}/{file}"
            self.send(307, headers={"Location": cached_at, **known})
        else:
            if self.command == "GET":
                self.hub.sent.append(file)
            self.send(200, content, known)

    def _readable(self, name: str, *, listing: bool = False) -> Repository | None:
        """Returns a repository that the caller may read, or answers as the hub does for one that it may not.

        Everybody may list a gated one. Whether a private one is there is not told.
        """
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.tokens and self.token not in repository.tokens):
            if repository is not None and repository.gated:
                if listing:
                    return repository
                said = f"Access to model {name} is restricted."
                self._refuse(403 if self.token else 401, "GatedRepo", said)
            elif self.token:
                self._refuse(404, "RepoNotFound", "Repository not found")
            else:
                self.send(401, b'{"error": "Invalid username or password."}')
            return None
        return repository

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self.send(status, json.dumps({"error": message}).encode(), headers)


class _CdnHandler(_Handler):
    def answer(self) -> None:
        owner, name, *file = self.path.strip("/").split("/")
        if self.token:
            self.hub.tokens_at_cdn.append(self.token)
        self.hub.sent.append("/".join(file))
        self.send(200, self.hub.repositories[f"{owner}/{name}"].files["/".join(file)])


def _listed(file: str, content: bytes) -> dict[str, Any]:
    """Returns a file of a listing. Of a large one, the blob is a pointer of its own."""
    blob = {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
    if not file.endswith(LARGE):
        return blob
    return blob | {"lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}}
