"""Runs of a study as tasks of Ray: each task only starts `rl-training train` or `resume` as a process."""

from __future__ import annotations

import logging
import os
import signal
import socket
from typing import Any

from rl_training.core.checks import UserError, one_line
from rl_training.core.machine import CORES_VARIABLE
from rl_training.core.signals import NUMBERS
from rl_training.studies.folder import StudyFolder
from rl_training.studies.launchers import LOST
from rl_training.studies.process import run_planned
from rl_training.studies.study_file import Resources

CONNECT_SECONDS = 5.0
LOCAL_ADDRESSES = ("", "local", "auto")


class RayLauncher:
    """Runs as tasks of a Ray cluster. A task whose worker or node dies is run again, and resumes its run."""

    detaches = False

    def __init__(
        self, folder: StudyFolder, resources: Resources, gpu_share: float, address: str | None, jobs: int | None
    ) -> None:
        self.folder, self.resources, self.gpu_share, self.jobs = folder, resources, gpu_share, jobs
        self.address = address or os.environ.get("RAY_ADDRESS") or "local"
        self.ray = _connect(self.address)
        # A function of an importable module: Ray sends its name, and plain text as its arguments.
        options = {"num_cpus": resources.cpus, "num_gpus": gpu_share, "max_retries": -1}
        self._task = self.ray.remote(**options)(run_planned)
        self._running: dict[str, Any] = {}
        self._environment = {CORES_VARIABLE: str(resources.cpus)}

    def describe(self) -> str:
        total = self.ray.cluster_resources()
        nodes = sum(bool(node["Alive"]) for node in self.ray.nodes())
        share = f" and {self.gpu_share:g} of {total.get('GPU', 0):g} GPUs" if self.gpu_share else ""
        each = f"{self.resources.cpus} of {total.get('CPU', 0):g} cores{share}"
        return f"{self._at_once()} at a time on Ray ({self.address}, {nodes} nodes); each has {each}"

    def _at_once(self) -> int:
        total = self.ray.cluster_resources()
        fits = int(total.get("CPU", 0)) // self.resources.cpus
        if self.gpu_share:
            fits = min(fits, int(total.get("GPU", 0) / self.gpu_share + 1e-9))
        return min(max(fits, 1), self.jobs or fits or 1)

    def free(self) -> int:
        return self._at_once() - len(self._running)

    def start(self, name: str) -> None:
        self._running[name] = self._task.remote(str(self.folder.path), name, self._environment)

    def poll(self) -> list[tuple[str, int]]:
        if not self._running:
            return []
        refs = {ref: name for name, ref in self._running.items()}
        ready, _ = self.ray.wait(list(refs), num_returns=len(refs), timeout=0)
        ended = []
        for ref in ready:
            ended.append((refs[ref], self._code(ref, refs[ref])))
            del self._running[refs[ref]]
        return ended

    def _code(self, ref: Any, name: str) -> int:
        try:
            return int(self.ray.get(ref))
        except self.ray.exceptions.TaskCancelledError:
            return -signal.SIGTERM
        except self.ray.exceptions.RayTaskError as error:  # raised by our own code on the node
            with self.folder.log(name).open("a") as log:
                print(f"error: {one_line(error.cause)}", file=log)
            return 1
        except self.ray.exceptions.RayError:
            return LOST

    def stop(self, number: int, name: str | None = None) -> None:
        for one, ref in self._running.items():
            if name in (None, one):
                self.ray.cancel(ref)

    def close(self) -> None:
        self.ray.shutdown()


def _connect(address: str) -> Any:
    """Ray, connected to a cluster, or to one of this machine alone."""
    handlers = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is not installed: pip install 'rl-training[ray]'") from error
    try:
        _check_reachable(address)
        ray.init(
            address=None if address == "local" else address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=None if address != "local" else False,
        )
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"Ray at {address} cannot be used: {one_line(error)}") from error
    finally:
        for number, handler in handlers.items():  # Ray replaces them, and a signal would not stop the runs
            signal.signal(number, handler)
    return ray


def _check_reachable(address: str) -> None:
    """Reject an address that nobody listens at: Ray itself would wait for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in LOCAL_ADDRESSES or not host:
        return
    if not port.isdecimal():
        raise UserError(f"address must be HOST:PORT or ray://HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise UserError(f"Ray at {address} cannot be reached ({error.strerror or error})") from error
