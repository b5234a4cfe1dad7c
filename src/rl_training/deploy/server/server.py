"""The HTTP server: answers predictions of one agent, its contract, its health and a page to try it."""

from __future__ import annotations

import errno
import json
import math
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from rl_training.core.checks import UserError, one_line
from rl_training.core.signals import active_signals, deferred
from rl_training.core.version import __version__
from rl_training.deploy.export.contract import describe_policy
from rl_training.deploy.export.policy import Policy
from rl_training.deploy.server.bodies import JSON, BadRequest, read_request, write_answer
from rl_training.deploy.server.page import page
from rl_training.envs.spaces.trees import tree
from rl_training.run.agent import Agent

MAX_CONNECTIONS = 512  # beyond them, connections wait to be accepted
CLIENT_SECONDS = 30.0  # that a client may take to send a request or to read its answer
CLOSING_SECONDS = 5.0  # that requests in progress have to end when the server stops
METHODS = {"/": "GET, HEAD", "/contract": "GET, HEAD", "/health": "GET, HEAD", "/predict": "POST"}
HTML = "text/html; charset=utf-8"
POLICY = "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'"  # of the page's content


@dataclass(frozen=True)
class Limits:
    """The largest request."""

    body_bytes: int = 8 * 2**20
    rows: int = 4096


class Predictions:
    """An agent's predictions, all by one thread: torch has a pool of threads and memory for each one that calls it."""

    def __init__(self, agent: Agent, seed_index: int = 0, limits: Limits | None = None) -> None:
        self.agent, self.seed_index, self.limits = agent, seed_index, limits or Limits()
        policy = Policy(agent, seed_index)
        self.contract = describe_policy(policy)
        self.recurrent = bool(policy.states)
        self.example = _example(policy)
        self.answered = 0
        self._worker = ThreadPoolExecutor(1, "predictions")

    def answer(self, kind: str, body: bytes) -> bytes:
        """The answer to a request for predictions."""
        given = read_request(kind, body, self.limits.body_bytes)
        if "entries" in given:
            given["obs"] = self._nested(given.pop("entries"))
        if self.recurrent:
            given["state"] = {} if given.get("state") is None else given["state"]
        elif given.pop("state", None):
            raise BadRequest("state must be left out: the policy has no memory")
        rows = self._rows(given["obs"])
        if rows > self.limits.rows:
            raise BadRequest(f"a batch must have at most {self.limits.rows} observations, got {rows}", 413)
        obs = given.pop("obs")
        if given.get("action_mask") is None:
            given.pop("action_mask", None)
        found = self._worker.submit(self._predict, obs, given).result()
        action, state = found if self.recurrent else (found, None)
        return write_answer(kind, action, state)

    def _predict(self, obs: Any, options: Mapping[str, Any]) -> Any:
        found = self.agent.predict(obs, **options, seed_index=self.seed_index)
        self.answered += 1
        return found

    def _nested(self, entries: Mapping[str, Any]) -> Any:
        """A Dict or Tuple observation from its arrays by name."""
        leaves = {leaf.name: leaf.path for leaf in self.agent.observation.leaves}
        if entries.keys() != leaves.keys() or not self.agent.observation.is_tree:
            names = ", ".join(f"obs.{name}" for name in leaves) if self.agent.observation.is_tree else "obs"
            raise BadRequest(f"the arrays of an observation must be {names}")
        return tree(self.agent.observation.space, (), {leaves[name]: one for name, one in entries.items()})

    def _rows(self, obs: Any) -> int:
        """The number of observations, before they are read; 1 where that cannot be told."""
        leaf = self.agent.observation.leaves[0]
        try:
            size = np.asarray(leaf.value_in(obs)).size
        except (TypeError, LookupError, ValueError):
            return 1  # `predict` says what is wrong
        return math.ceil(size / max(1, math.prod(leaf.space.shape or ())))


def _example(policy: Policy) -> dict[str, Any]:
    """A request for the page to start from, with numbers of few digits."""
    given = policy.sample(np.random.default_rng(0), 1)[1]

    def short(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: short(one) for key, one in value.items()}
        if isinstance(value, tuple):
            return [short(one) for one in value]
        first = np.asarray(value)[0]
        return (np.round(first, 2) if first.dtype.kind == "f" else first.astype(np.int64)).tolist()

    return {name: short(one) for name, one in given.items()}


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"rl-training/{__version__}", ""
    timeout = CLIENT_SECONDS
    server: PredictionServer

    def do_GET(self) -> None:
        with self.server.request_in_progress():
            self._get()

    do_HEAD = do_GET

    def do_POST(self) -> None:
        with self.server.request_in_progress():
            self._post()

    def _get(self) -> None:
        predictions = self.server.predictions
        if self.path == "/health":
            health = {"status": "ok", "algorithm": predictions.contract["algorithm"], "answered": predictions.answered}
            self._send(HTTPStatus.OK, JSON, json.dumps(health).encode())
        elif self.path == "/contract":
            self._send(HTTPStatus.OK, JSON, json.dumps(predictions.contract).encode())
        elif self.path == "/":
            self._send(HTTPStatus.OK, HTML, page(predictions.contract, predictions.example).encode())
        else:
            self._reject_place()

    def _post(self) -> None:
        try:
            body = self._body()
            if METHODS.get(self.path) != "POST":
                return self._reject_place()
            kind = self.headers.get("Content-Type", JSON).partition(";")[0].strip().lower()
            answer = self.server.predictions.answer(kind, body)
        except UserError as error:
            self._reject(error.status if isinstance(error, BadRequest) else 400, str(error))
        except OSError:  # the client is gone, or too slow
            self.close_connection = True
        except Exception as error:  # a bug, which must not end the server
            print(f"request failed: {type(error).__name__}: {one_line(error)}", file=sys.stderr)
            self._reject(500, "the prediction failed; the server's log has the reason")
        else:
            self._send(HTTPStatus.OK, kind, answer)

    def _body(self) -> bytes:
        """The body of a request; one whose length is unknown or too large is not read, and ends the connection."""
        limit, text = self.server.predictions.limits.body_bytes, self.headers.get("Content-Length")
        if text is None or not (text.isascii() and text.isdigit()) or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise BadRequest("a Content-Length is needed", 411)
        if int(text) > limit:
            self.close_connection = True
            raise BadRequest(f"a request must be at most {limit} bytes, got {text}", 413)
        body = self.rfile.read(int(text))
        if len(body) != int(text):
            raise ConnectionError("the request ended early")
        return body

    def _reject_place(self) -> None:
        """The answer to a path that does not exist, or does not take the method."""
        methods = METHODS.get(self.path)
        if methods is None:
            self._reject(HTTPStatus.NOT_FOUND, "there are GET /, /contract and /health, and POST /predict")
        else:
            self._reject(HTTPStatus.METHOD_NOT_ALLOWED, f"{self.path} takes {methods}, got {self.command}")

    def _reject(self, status: int, message: str) -> None:
        self._send(status, JSON, json.dumps({"error": one_line(message)}).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", METHODS[self.path])
            if kind == HTML:
                self.send_header("Content-Security-Policy", POLICY)
            if self.close_connection or self.server.closing.is_set():
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)
        except OSError:
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The answer to a request that is not HTTP as expected, in one line as every other."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:  # what http.server answers to other methods
            return self._reject_place()
        self.command = getattr(self, "command", "") or ""
        self.request_version = self.protocol_version  # a line that is no HTTP counts as HTTP/0.9, which has no headers
        self._reject(code, message or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class PredictionServer(ThreadingHTTPServer):
    """A server with a thread for each connection, up to `MAX_CONNECTIONS`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, predictions: Predictions, host: str, port: int) -> None:
        self.predictions, self.closing = predictions, threading.Event()
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._idle = threading.Condition()
        self._busy = 0
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is in use; another one, or 0 for any that is free, can be given" if taken else f": {error.strerror}"
            raise UserError(f"{host}:{port} {why}" if taken else f"{host}:{port}{why}") from error
        except OverflowError as error:
            raise UserError(f"port must be >= 0 and <= 65535, got {port}") from error

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    @contextmanager
    def request_in_progress(self) -> Iterator[None]:
        """Context of one request, for which `close` waits."""
        with self._idle:
            self._busy += 1
        try:
            yield
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that a client broke off is no news."""

    def close(self) -> None:
        """Stop accepting, and wait a few seconds for the requests in progress."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0, CLOSING_SECONDS)


def serve_until_stopped(server: PredictionServer) -> int:
    """Serve until SIGINT or SIGTERM; returns the number of the signal."""
    signals = active_signals()
    with deferred():
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="server")
        thread.start()
        stopped = threading.Event()
        while signals.received is None and thread.is_alive():
            stopped.wait(0.1)
        signals.stopping = True
        server.close()
        thread.join()
    return signals.received or 0
