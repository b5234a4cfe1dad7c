"""The HTTP server of one agent: its address, its connections, and its end."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from rl_training.core.checks import UserError, require, shown
from rl_training.core.signals import active_signals, deferred
from rl_training.deploy.server.handler import Handler
from rl_training.deploy.server.predictions import Predictions

MAX_CONNECTIONS = 512  # beyond them, connections wait to be accepted
CLOSING_SECONDS = 5.0  # that requests in progress have to end when the server stops


def _address(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """The family and address of a host; IPv4 where it has both."""
    require(bool(host), "host", "an address; 127.0.0.1 is this machine alone, 0.0.0.0 is every network")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a part of the name that is empty or too long
        raise UserError(f"host must be an address or a name, got {shown(host)}") from error
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, (address[0], port, *address[2:])


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
            self.address_family, address = _address(host, port)
            super().__init__(address, Handler)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = " is in use; another one, or 0 for any that is free, can be given" if taken else f": {error.strerror}"
            raise UserError(f"{_place(host, port)}{why}") from error
        except OverflowError as error:
            raise UserError(f"port must be >= 0 and <= 65535, got {port}") from error

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{_place(str(host), port)}"

    def process_request(self, request: Any, client_address: Any) -> None:
        # `shutdown` waits for this thread, which must not wait for slow clients then.
        while not self._free.acquire(timeout=0.1):
            if self.closing.is_set():
                return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            raise

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
        self.predictions.close()  # the interpreter would wait for all of them


def serve_until_stopped(server: PredictionServer) -> int:
    """Serve until SIGINT or SIGTERM; returns the number of the signal."""
    signals = active_signals()
    signals.notice = "answering the requests in progress; a second signal ends the program at once"
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
