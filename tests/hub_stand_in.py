"""A stand-in for the Hugging Face Hub: as much of its API as pushing and pulling an agent needs, in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse


class Hub(ThreadingHTTPServer):
    """Repositories of files by name; `requests` are the requested paths."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit_of(self, repo: str) -> str:
        return hashlib.sha1(repr(sorted(self.repos[repo].items())).encode()).hexdigest()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlparse(self.path).path
        self.server.requests.append(f"POST {path}")
        if path == "/api/repos/create":
            given = json.loads(body)
            repo = f"{given['organization']}/{given['name']}" if given.get("organization") else given["name"]
            self.server.repos.setdefault(repo, {})
            self._json({"url": f"{self.server.url}/{repo}", "name": repo})
        elif path == "/api/validate-yaml":
            self._json({"warnings": [], "errors": []})
        elif "/preupload/" in path:
            files = json.loads(body)["files"]
            self._json(
                {"files": [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]}
            )
        elif "/commit/" in path:
            repo = path.removeprefix("/api/models/").partition("/commit/")[0]
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.repos[repo][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            commit = self.server.commit_of(repo)
            self._json({"commitUrl": f"{self.server.url}/{repo}/commit/{commit}", "commitOid": commit, "success": True})
        else:
            self._json({"error": "not here"}, 404)

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        if path.startswith("/api/models/"):
            repo = path.removeprefix("/api/models/").partition("/revision/")[0]
            if repo not in self.server.repos:
                self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
                return
            names = [{"rfilename": name, "size": len(data)} for name, data in self.server.repos[repo].items()]
            about = {"id": repo, "modelId": repo, "sha": self.server.commit_of(repo), "siblings": names, "tags": []}
            self._json({**about, "private": False, "downloads": 0, "likes": 0})
            return
        repo, _, rest = path.strip("/").partition("/resolve/")
        name = rest.partition("/")[2]
        files = self.server.repos.get(repo)
        if files is None or name not in files:
            self._json(
                {"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound" if files else "RepoNotFound"}
            )
            return
        digest = hashlib.sha256(files[name]).hexdigest()
        self._send(files[name], {"ETag": f'"{digest}"', "X-Repo-Commit": self.server.commit_of(repo)})

    do_HEAD = do_GET

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}, status)

    def _send(self, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
