"""HTTP of one connection: requests for predictions, the contract, the health and the page, and their answers."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from email.errors import MissingHeaderBodySeparatorDefect
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from rl_training.core.checks import UserError, one_line
from rl_training.core.version import __version__
from rl_training.deploy.server.bodies import JSON, BadRequest
from rl_training.deploy.server.page import page

if TYPE_CHECKING:
    from rl_training.deploy.server.server import PredictionServer

CLIENT_SECONDS = 30.0  # that a client may take to begin a request, to send it, and to read its answer
SLOWEST = 2**16  # bytes a second of a body, for which it has so much longer
LINGER_SECONDS, LINGER_BYTES = 5.0, 2**26  # of a rejected request that are still read
MAX_DIGITS = 20  # of a Content-Length; Python reads no more than 4300
METHODS = {"/": "GET, HEAD", "/contract": "GET, HEAD", "/health": "GET, HEAD", "/predict": "POST"}
HTML = "text/html; charset=utf-8"
POLICY = "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'"  # of the page's content


class Incoming(io.RawIOBase):
    """What a client sends. A timeout for each read alone would let a client send a byte at a time for ever."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline: float | None = None  # None: the next request has not begun

    def wait(self) -> None:
        """Wait for the next request, whose time begins with its first byte."""
        self._deadline = None

    def expect(self, seconds: float) -> None:
        """Let what is still to be read arrive within this time."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = CLIENT_SECONDS if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        try:
            count = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(CLIENT_SECONDS)  # for the answer
        if self._deadline is None:
            self.expect(CLIENT_SECONDS)
        return count


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"rl-training/{__version__}", ""
    server: PredictionServer

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.incoming = Incoming(self.connection)
        self.rfile = io.BufferedReader(self.incoming)

    def handle_one_request(self) -> None:
        self.read_whole = False  # whether what comes next is another request
        self.incoming.wait()
        super().handle_one_request()

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        # The parser takes the rest of the headers for a body, so a proxy may see another length than this server.
        broken = any(isinstance(one, MissingHeaderBodySeparatorDefect) for one in self.headers.defects)
        if broken or len(self.headers.get_all("Content-Length", [])) > 1:
            self.send_error(HTTPStatus.BAD_REQUEST, "the headers must be lines of name: value, with one Content-Length")
            return False
        return True

    def do_GET(self) -> None:
        with self.server.request_in_progress():
            self._get()

    do_HEAD = do_GET

    def do_POST(self) -> None:
        with self.server.request_in_progress():
            self._post()

    def _get(self) -> None:
        # A body has no meaning here; left unread, it would be taken for the next request.
        self.read_whole = not ("Content-Length" in self.headers or "Transfer-Encoding" in self.headers)
        self.close_connection = self.close_connection or not self.read_whole
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
            if self.server.closing.is_set():  # its prediction was cancelled
                return self._reject(HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping")
            print(f"request failed: {type(error).__name__}: {one_line(error)}", file=sys.stderr)
            self._reject(500, "the prediction failed; the server's log has the reason")
        else:
            self._send(HTTPStatus.OK, kind, answer)

    def _body(self) -> bytes:
        """The body of a request; one whose length is unknown or too large is not read, and ends the connection."""
        limit = self.server.predictions.limits.body_bytes
        text = self.headers.get("Content-Length", "").strip(" \t")  # a header may have blanks around its value
        if not (text.isascii() and text.isdigit()) or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise BadRequest("a Content-Length is needed", 411)
        if len(text) > MAX_DIGITS or int(text) > limit:
            self.close_connection = True
            raise BadRequest(f"a request must be at most {limit} bytes, got {text}", 413)
        length = int(text)
        self.incoming.expect(CLIENT_SECONDS + length / SLOWEST)
        body = self.rfile.read(length)
        if len(body) != length:
            raise ConnectionError("the request ended early")
        self.read_whole = True
        return body

    def _linger(self) -> None:
        """Read what the client still sends: closed before, the connection is reset and the answer lost."""
        self.connection.shutdown(socket.SHUT_WR)
        self.incoming.expect(LINGER_SECONDS)
        left = LINGER_BYTES
        while left > 0 and (data := self.rfile.read1(2**16)):
            left -= len(data)

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
            if self.close_connection and not self.read_whole:
                self._linger()
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
