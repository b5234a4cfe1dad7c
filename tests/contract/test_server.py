"""The prediction server, with a real client: every form of a request, what is rejected, and the page."""

from __future__ import annotations

import errno
import http.client
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import browser, chromium
from dict_envs import ACTIONS, NUMBERS
from fresh_agents import VECTOR, fresh_agent, saved
from harness import ROOT, run_cli
from masked_envs import SPACES as MASKED_ACTIONS

from rl_training.core.checks import UserError
from rl_training.deploy.server import handler
from rl_training.deploy.server import server as server_module
from rl_training.deploy.server.bodies import NPZ, BadRequest, read_request
from rl_training.deploy.server.predictions import Limits, Predictions
from rl_training.deploy.server.server import PredictionServer

Serve = Callable[..., "Client"]


class Client:
    """A client of one server, with a connection that is kept."""

    def __init__(self, server: PredictionServer) -> None:
        self.server = server
        self.connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)  # type: ignore[arg-type]
        self.headers = http.client.HTTPMessage()  # of the last answer

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        if kind == "application/json" and body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.connection.request(method, path, body, {"Content-Type": kind} if body is not None else {})
        answer = self.connection.getresponse()
        self.headers, data = answer.headers, answer.read()
        found = json.loads(data) if answer.headers["Content-Type"] == "application/json" else data
        return answer.status, found

    def predict(self, body: Any, kind: str = "application/json") -> tuple[int, Any]:
        return self.ask("POST", "/predict", body, kind)


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[tuple[PredictionServer, threading.Thread]] = []

    def start(agent: Any, host: str = "127.0.0.1", **limits: int) -> Client:
        server = PredictionServer(Predictions(agent, limits=Limits(**limits)), host, 0)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return Client(server)

    yield start
    for server, thread in servers:
        server.close()
        thread.join()


def test_json_one_and_a_batch(serve: Serve) -> None:
    agent = fresh_agent("sac", VECTOR, ACTIONS["box"])
    client = serve(agent)
    obs = [[0.5, -1, 2], [0, 0, 0]]
    assert client.predict({"obs": obs[0]}) == (200, {"action": agent.predict(obs[0]).tolist()})
    assert client.predict({"obs": obs}) == (200, {"action": agent.predict(obs).tolist()})
    status, answer = client.predict({"obs": obs[0], "deterministic": False})
    assert status == 200 and answer["action"] != agent.predict(obs[0]).tolist()
    status, health = client.ask("GET", "/health")
    assert status == 200 and health == {"status": "ok", "algorithm": "sac", "answered": 3}
    status, contract = client.ask("GET", "/contract")
    assert status == 200 and contract["agent"]["sha256"] == agent.digest()


def test_raw_arrays(serve: Serve) -> None:
    agent = fresh_agent("ppo", NUMBERS, ACTIONS["box"])
    client = serve(agent)
    rng, rows = np.random.default_rng(0), 6
    NUMBERS.seed(0)
    samples = [NUMBERS.sample() for _ in range(rows)]
    file = io.BytesIO()
    arrays = {
        "obs.position": np.stack([one["position"] for one in samples]),
        "obs.inner.mode": np.stack([one["inner"]["mode"] for one in samples]),
        "obs.inner.flags": np.stack([one["inner"]["flags"] for one in samples]),
        "obs.gears.0": np.stack([one["gears"][0] for one in samples]),
        "obs.gears.1": np.stack([one["gears"][1] for one in samples]),
    }
    np.savez(file, **arrays)
    status, answer = client.predict(file.getvalue(), "application/x-npz")
    assert status == 200
    with np.load(io.BytesIO(answer)) as found:
        for row, one in enumerate(samples):
            assert np.allclose(found["action"][row], agent.predict(one), atol=1e-6)
    plain = fresh_agent("td3", VECTOR, ACTIONS["box"])
    obs = rng.standard_normal((5, 3)).astype(np.float32)
    file = io.BytesIO()
    np.save(file, obs)
    status, answer = serve(plain).predict(file.getvalue(), "application/x-npy")
    assert status == 200 and np.array_equal(np.load(io.BytesIO(answer)), plain.predict(obs))


def test_memory_and_masks(serve: Serve) -> None:
    agent = fresh_agent("ppo", VECTOR, MASKED_ACTIONS["discrete"], masked=True, recurrent="lstm", batch_size=8)
    client, state, expected_state = serve(agent), None, {}  # null, too, is the start of an episode
    for step in range(4):
        obs, mask = [step / 4, 1, -1], [int(number == step) for number in range(12)]
        status, answer = client.predict({"obs": obs, "state": state, "action_mask": mask})
        expected, expected_state = agent.predict(obs, state=expected_state, action_mask=mask)
        state = answer["state"]
        assert status == 200 and answer["action"] == expected == step + 3
        assert np.allclose(state["h"], expected_state["h"], atol=1e-6)


@pytest.mark.parametrize("kind", ["application/json", NPZ])
def test_an_observation_that_a_memory_cannot_take(kind: str, serve: Serve) -> None:
    agent = fresh_agent("ppo", VECTOR, ACTIONS["box"], recurrent="gru", batch_size=8)
    for params in agent.learner.engine.groups().values():
        for one in params.values():
            one.mul_(10)
    file = io.BytesIO()
    np.savez(file, obs=np.full(3, 3e38, np.float32))
    body: Any = {"obs": [3e38] * 3} if kind == "application/json" else file.getvalue()
    status, answer = serve(agent).predict(body, kind)
    assert status == 400 and b"the state that follows is not finite" in json.dumps(answer).encode()


@pytest.mark.filterwarnings("error:The given NumPy array")
def test_a_state_is_taken_as_answered_and_as_the_contract_has_it(serve: Serve) -> None:
    agent = fresh_agent("ppo", VECTOR, ACTIONS["box"], recurrent="lstm", batch_size=8)
    client = serve(agent)
    shapes = {one["name"]: one["shape"] for one in client.server.predictions.contract["inputs"]}
    state = client.predict(client.server.predictions.example)[1]["state"]  # the page's
    single = {name: one[0] for name, one in state.items()}
    assert all(["batch", *np.shape(one)] == shapes[f"state.{name}"] for name, one in single.items())
    status, answer = client.predict({"obs": [1, 0, 0], "state": state})
    assert status == 200 and client.predict({"obs": [1, 0, 0], "state": single}) == (200, answer)
    assert answer != client.predict({"obs": [1, 0, 0], "state": {}})[1]
    arrays = {f"state.{name}": np.array(one, np.float32) for name, one in single.items()}
    assert client.predict(_npz(obs=np.array([1.0, 0, 0]), **arrays), "application/x-npz")[0] == 200
    status, answer = client.predict({"obs": [[1, 0, 0]] * 2, "state": single})
    assert status == 400 and "state: h must be of shape (2, 8), got (8,)" in answer["error"]


def test_the_example_of_the_page_is_short(plain_agent: Any) -> None:
    assert all(round(one, 2) == one for one in Predictions(plain_agent).example["obs"])


def _npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def _archive(data: bytes, method: int = zipfile.ZIP_DEFLATED, names: tuple[str, ...] = ("obs.npy",)) -> bytes:
    """An archive that has the same data by every name."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in names:
            archive.writestr(name, data)
    return file.getvalue()


def _declaring(archive: bytes, offset: int, value: bytes) -> bytes:
    """An archive of one member with other bytes at an offset in its entry of the directory."""
    place = archive.rindex(b"PK\x01\x02") + offset
    return archive[:place] + value + archive[place + len(value) :]


def _far_away(archive: bytes) -> bytes:
    """An archive of one member that declares to begin at byte 2**63."""
    entry, end = archive.rindex(b"PK\x01\x02"), archive.rindex(b"PK\x05\x06")
    extra = struct.pack("<HHQ", 1, 8, 2**63)
    directory = _declaring(_declaring(archive, 42, b"\xff" * 4), 30, struct.pack("<H", len(extra)))[entry:end] + extra
    return (
        archive[:entry] + directory + archive[end : end + 12] + struct.pack("<I", len(directory)) + archive[end + 16 :]
    )


NUMBERS_FILE = _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n") + bytes(range(12))
DEFLATED, LZMA = _archive(NUMBERS_FILE), _archive(NUMBERS_FILE, zipfile.ZIP_LZMA)
DAMAGE = 30 + len("obs.npy") + 4  # into the stream of the first member

BAD: list[tuple[Any, str, int, str]] = [
    (b"{", "application/json", 400, "the body must be JSON"),
    (b"[" * 100_000, "application/json", 400, "the body must be JSON"),
    (b'{"obs": [NaN, 0, 0]}', "application/json", 400, "NaN is not a number of JSON"),
    ({"obz": [0, 0, 0]}, "application/json", 400, "a JSON object with obs"),
    ({"obs": [0, 0, 0], "masks": []}, "application/json", 400, "'masks' is no field of a request"),
    ({"obs": [0, 0]}, "application/json", 400, "must be of shape (3,) or a batch of it, got (2,)"),
    ({"obs": [[0, 0, 0], [1]]}, "application/json", 400, "got a ragged list"),
    ({"obs": {"x": 1}}, "application/json", 400, "must be an array of numbers"),
    ({"obs": "text"}, "application/json", 400, "must be an array of numbers"),
    ({"obs": [0, 0, 0], "action_mask": [1, 0]}, "application/json", 400, "does not support action masks"),
    ({"obs": [0, 0, 0], "state": {"h": []}}, "application/json", 400, "the policy has no memory"),
    ({"obs": [0, 0, 0], "deterministic": "yes"}, "application/json", 400, "must be true or false"),
    ({"obs": [0, 0, 0], "episode_start": "no"}, "application/json", 400, "episode_start must be true or false"),
    ({"obs": [[0, 0, 0]] * 9}, "application/json", 413, "at most 8 observations, got 9"),
    (b"x" * 5000, "application/json", 413, "at most 4000 bytes, got 5000"),
    (b"x", "text/plain", 415, "Content-Type must be"),
    (b"x", "application/x-npy", 400, "as written by numpy.save"),
    (b"x", "application/x-npz", 400, "as written by numpy.savez"),
    (_npy("{'descr': ("), "application/x-npy", 400, "a header that numpy does not write"),
    (_npy("'''"), "application/x-npy", 400, "a header that numpy does not write"),
    (_npy("(" * 3900), "application/x-npy", 400, "a header that numpy does not write"),
    (DEFLATED[:DAMAGE] + b"\xff" * 20 + DEFLATED[DAMAGE + 20 :], "application/x-npz", 400, "as written by numpy.savez"),
    (LZMA, "application/x-npz", 400, "neither stored nor deflated"),
    (_archive(NUMBERS_FILE, names=("obs", "obs.npy")), "application/x-npz", 400, "distinct names, got 'obs' twice"),
    (_far_away(DEFLATED), "application/x-npz", 400, "as written by numpy.savez"),
    (_npz(obs=[0, 0, 0], episode_start=[0.5]), "application/x-npz", 400, "episode_start must be an array of bool"),
]


@pytest.fixture(scope="module")
def plain_agent() -> Any:
    return fresh_agent("td3", VECTOR, ACTIONS["box"])


@pytest.mark.parametrize(("body", "kind", "status", "message"), BAD)
def test_bad_requests(serve: Serve, plain_agent: Any, body: Any, kind: str, status: int, message: str) -> None:
    client = serve(plain_agent, body_bytes=4000, rows=8)
    if status != 413 and isinstance(body, bytes) and len(body) > 4000:
        client = serve(plain_agent)
    found, answer = client.predict(body, kind)
    assert found == status and message in answer["error"] and "\n" not in answer["error"]
    client.connection.close()
    assert client.predict({"obs": [0, 0, 0]})[0] == 200  # the server still answers


def test_hostile_arrays(serve: Serve, plain_agent: Any, tmp_path: Path) -> None:
    """Pickles are not loaded, headers that promise more than there is and archives that unpack to more are rejected."""
    client = serve(plain_agent, body_bytes=10_000)

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    pickled, huge, bomb = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(pickled, np.array([Evil()], dtype=object), allow_pickle=True)
    np.lib.format.write_array_header_1_0(huge, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 3)})
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("obs.npy", b"\0" * 1_000_000)
    for body, kind in ((pickled, "npy"), (huge, "npy"), (bomb, "npz")):
        status, answer = client.predict(body.getvalue(), f"application/x-{kind}")
        assert status in (400, 413) and answer["error"]
        client.connection.close()
    assert not (tmp_path / "executed").exists()


def test_an_archive_that_understates_its_size_is_not_unpacked() -> None:
    archive = _declaring(_archive(NUMBERS_FILE + bytes(50_000_000)), 24, struct.pack("<I", len(NUMBERS_FILE)))
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest):
            read_request(NPZ, archive, limit=1000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [("GET", "/predict", 405, "POST"), ("GET", "/nothing", 404, None), ("POST", "/nothing", 404, None),
     ("PUT", "/nothing", 404, None), ("POST", "/", 405, "GET, HEAD"), ("PUT", "/", 405, "GET, HEAD"),
     ("DELETE", "/predict", 405, "POST")],
)  # fmt: skip
def test_other_paths_and_methods(
    serve: Serve, plain_agent: Any, method: str, path: str, status: int, allowed: str | None
) -> None:
    client = serve(plain_agent)
    found, answer = client.ask(method, path, b"{}" if method != "GET" else None)
    assert found == status and answer["error"] and client.headers["Allow"] == allowed


def test_a_body_without_a_length_and_broken_http(serve: Serve, plain_agent: Any) -> None:
    client = serve(plain_agent)
    for sent, status in ((b"POST /predict HTTP/1.1\r\n\r\n", b"411"), (b"nonsense\r\n\r\n", b"400")):
        with socket.create_connection(client.server.server_address[:2], timeout=10) as connection:
            connection.sendall(sent)
            assert status in connection.recv(4096).splitlines()[0]


def test_blanks_around_the_length_of_a_body(serve: Serve, plain_agent: Any) -> None:
    body = b'{"obs": [0, 0, 0]}'
    head = b"POST /predict HTTP/1.1\r\nConnection: close\r\nContent-Length: \t%d \t\r\n\r\n" % len(body)
    assert b"200 OK" in raw(serve(plain_agent).server, head + body).splitlines()[0]


def raw(server: PredictionServer, sent: bytes) -> bytes:
    """All that the server answers until it closes the connection."""
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


SECOND = b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /health HTTP/1.1\r\nContent-Length: %d\r\n\r\n", b"200"),
        (b"HEAD /health HTTP/1.1\r\nContent-Length: %d\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\nContent-Length : %d\r\n\r\n", b"400"),
        (b"POST /predict HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: %d\r\n\r\n", b"400"),
        (b"POST /predict HTTP/1.1\r\nContent-Length: 1" + b"0" * 5000 + b"\r\n\r\n", b"413"),
    ],
    ids=["length", "head", "chunked", "space", "two lengths", "digits"],
)
def test_a_body_is_never_the_next_request(serve: Serve, plain_agent: Any, sent: bytes, status: bytes) -> None:
    head = sent % len(SECOND) if b"%" in sent else sent
    answer = raw(serve(plain_agent).server, head + SECOND)
    assert answer.count(b"HTTP/1.1") == 1 and status in answer.splitlines()[0]


def test_a_client_that_sends_first_sees_why_it_is_rejected(
    serve: Serve, plain_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "LINGER_SECONDS", 60.0)
    status, answer = serve(plain_agent, body_bytes=4000).predict(bytes(2**24))
    assert status == 413 and "at most 4000 bytes" in answer["error"]


def test_a_request_has_a_deadline_however_often_a_byte_comes(
    serve: Serve, plain_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "CLIENT_SECONDS", 1.0)
    client = serve(plain_agent)
    for start in (b"POST /predict HTTP/1.1\r\n", b"POST /predict HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"):
        with socket.create_connection(client.server.server_address[:2], timeout=0.05) as connection:
            connection.sendall(start)
            for _ in range(600):
                try:
                    connection.sendall(b"x")
                    assert connection.recv(100) == b""
                    break
                except TimeoutError:  # still open
                    continue
                except ConnectionError:
                    break
            else:
                pytest.fail("the connection is still open")


def test_a_server_without_free_places_can_be_closed(
    serve: Serve, plain_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(server_module, "CLOSING_SECONDS", 0.1)
    server, accepted = serve(plain_agent).server, threading.Semaphore(0)
    # Called before a connection waits for a place.
    monkeypatch.setattr(server, "verify_request", lambda *_: accepted.release() or True)
    slow = [socket.create_connection(server.server_address[:2], timeout=20) for _ in range(2)]
    try:
        slow[0].sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
        for _ in slow:
            assert accepted.acquire(timeout=20)
        closing = threading.Thread(target=server.close)
        closing.start()
        closing.join(20)
        assert not closing.is_alive()
    finally:
        for one in slow:
            one.close()  # or the accepting thread would wait for ever


def test_predictions_that_wait_are_cancelled_at_the_end(
    serve: Serve, plain_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter waits for all that were submitted: minutes of them would outlive the server."""
    server = serve(plain_agent).server
    begun, go_on = threading.Event(), threading.Event()

    def slow(obs: Any, **options: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return np.zeros(1, np.float32)

    monkeypatch.setattr(server.predictions.agent, "predict", slow)
    monkeypatch.setattr(server_module, "CLOSING_SECONDS", 0.1)
    answers: list[int] = []
    askers = [
        threading.Thread(target=lambda: answers.append(Client(server).predict({"obs": [0, 0, 0]})[0])) for _ in "abc"
    ]
    for one in askers:
        one.start()
    assert begun.wait(20)
    waiting = server.predictions._worker._work_queue
    while waiting.qsize() < 2:
        time.sleep(0.01)
    server.close()
    go_on.set()
    for one in askers:
        one.join(20)
    assert sorted(answers) == [200, 503, 503]


def test_the_page_escapes_what_an_agent_says(serve: Serve) -> None:
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"])
    object.__setattr__(agent.config, "env_id", "<script>alert(1)</script>")
    status, page = serve(agent).ask("GET", "/")
    assert status == 200 and b"<script>alert" not in page and b"&lt;script&gt;alert" in page
    assert (
        b"http://" not in page.replace(b"http://www.w3.org", b"") and b"https://" not in page
    )  # nothing from elsewhere


def test_a_port_in_use_is_one_line(serve: Serve, plain_agent: Any, tmp_path: Path) -> None:
    client = serve(plain_agent)
    host, port = client.server.server_address[:2]
    with pytest.raises(UserError, match=rf"127.0.0.1:{port} is in use") as caught:
        PredictionServer(Predictions(plain_agent), str(host), port)
    assert caught.value.__cause__.errno == errno.EADDRINUSE  # type: ignore[union-attr]
    with pytest.raises(UserError, match="port must be >= 0 and <= 65535"):
        PredictionServer(Predictions(plain_agent), "127.0.0.1", 65536)


def test_hosts(plain_agent: Any) -> None:
    predictions = Predictions(plain_agent)
    for host, message in (("", "host must be an address"), ("a..b", r"a\.\.b")):
        with pytest.raises(UserError, match=message) as caught:
            PredictionServer(predictions, host, 0)
        assert len(str(caught.value).splitlines()) == 1
    server = PredictionServer(predictions, "localhost", 0)
    server.server_close()
    assert server.url.startswith("http://127.0.0.1:")  # IPv4 where a name has both


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_ipv6(serve: Serve, plain_agent: Any) -> None:
    client = serve(plain_agent, host="::1")
    port = client.server.server_address[1]
    assert client.server.url == f"http://[::1]:{port}" and client.predict({"obs": [0, 0, 0]})[0] == 200
    with pytest.raises(UserError, match=rf"^\[::1\]:{port} is in use"):
        PredictionServer(client.server.predictions, "::1", port)


def started(path: Path, *words: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """The program `rl-training serve`, and what it says when it is ready."""
    command = [sys.executable, "-m", "rl_training", "serve", str(path), "--port", "0", "--json", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


@pytest.mark.sweep
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.sweep)])
def test_a_signal_stops_the_program_cleanly(number: signal.Signals, plain_agent: Any, tmp_path: Path) -> None:
    process, about = started(saved(plain_agent, tmp_path))
    try:
        host = about["url"].removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=20)
        connection.request("POST", "/predict", json.dumps({"obs": [0, 0, 0]}), {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200  # and the connection stays open
        begin = time.monotonic()
        process.send_signal(number)
        assert process.wait(20) == 0 and time.monotonic() - begin < 10
        assert process.stderr is not None
        # A slow machine has the notice before it.
        assert process.stderr.read().splitlines()[-1] == f"stopped by {number.name} after 1 predictions"
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--port", "99999"], "port must be"), (["--max-batch", "0"], "max_batch"), (["--host", ""], "host must be")],
)
@pytest.mark.sweep
def test_invalid_commands(words: list[str], message: str, plain_agent: Any, tmp_path: Path) -> None:
    answer = run_cli("serve", str(saved(plain_agent, tmp_path)), *words)
    assert answer.returncode == 2 and message in answer.stderr and len(answer.stderr.splitlines()) == 1


@pytest.mark.sweep
def test_two_hundred_requests_in_flight(plain_agent: Any, tmp_path: Path) -> None:
    """Three seconds of what `make serve-load` does for a minute."""
    result, answer = tmp_path / "load.json", saved(plain_agent, tmp_path)
    words = ["--agent", str(answer), "--seconds", "3", "--output", str(result)]
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "serve_load.py"), *words], check=True, timeout=120)
    found = json.loads(result.read_text())
    assert found["errors"] == 0 and found["in_flight"] == 200 and found["requests"] > 200


@pytest.mark.sweep
@pytest.mark.parametrize("width", [1200, 390])
def test_a_person_tries_an_observation_in_a_browser(serve: Serve, plain_agent: Any, width: int, tmp_path: Path) -> None:
    chromium()
    client, obs = serve(plain_agent), [0.25, -0.5, 1]
    answer = "document.querySelector('#answer').textContent"
    with browser() as opened:
        page = opened.open(f"{client.server.url}/", width)
        text = page.evaluate("document.body.innerText")
        assert "td3 for Pendulum-v1" in text and plain_agent.digest() in text
        before = page.evaluate(answer)
        page.click("button")  # the example that stands there
        page.wait_for(f"{answer} !== {json.dumps(before)}")
        assert np.shape(json.loads(page.evaluate(answer))["action"]) == plain_agent.predict(obs).shape
        page.type("#request", json.dumps({"obs": obs}))
        before = page.evaluate(answer)
        page.click("button")
        page.wait_for(f"{answer} !== {json.dumps(before)}")
        assert json.loads(page.evaluate(answer)) == {"action": plain_agent.predict(obs).tolist()}
        page.screenshot(tmp_path / "answer.png")
        assert page.errors == [] and page.overflow() <= 0
        assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.scrollWidth <= t.clientWidth)")

        page.type("#request", json.dumps({"obs": [1, 2]}))
        page.click("button")
        page.wait_for("document.querySelector('#answer').className === 'wrong'")
        assert "(3,)" in page.evaluate(answer) and len(page.evaluate(answer).splitlines()) == 1
        assert {one.removeprefix(client.server.url) for one in page.requests} <= {"/predict"}
        page.screenshot(tmp_path / "wrong.png")
