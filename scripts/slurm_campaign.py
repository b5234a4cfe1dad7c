"""Requeues and kills the jobs of a study in a real Slurm on this machine; every run must equal the undisturbed one's.

Needs root and Debian's packages: apt-get install slurm-wlm munge. The daemons run with a configuration of their own in
a temporary folder, and are stopped at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from study_campaign import MAX_SECONDS, ROOT, StudyCampaign, children, kill, reached, write_result

CONF = """ClusterName=t
SlurmctldHost={host}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
JobRequeue=1
# A requeued job waits until its credential has expired: two minutes otherwise.
AuthInfo=cred_expire=5
SlurmUser=root
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.log
NodeName={host} CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
STUDY: dict[str, Any] = {
    "name": "slurm",
    "algorithms": ["dqn"],
    "environments": ["CartPole-v1"],
    "seeds": [0, 1],
    "config": {
        "total_timesteps": 1500, "checkpoint_interval": 50, "log_interval": 50, "eval_episodes": 2,
        "learning_starts": 200, "video": False, "report": False,
    },
    "overrides": [{"grid": {"gamma": [0.9, 0.95, 0.98, 0.99]}}],
    "resources": {"cpus": 1, "memory": 0.5},
}  # fmt: skip


class Slurm:
    """Slurm's daemons with a configuration of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for program in ("slurmctld", "slurmd", "munged"):
            if shutil.which(program) is None:
                raise SystemExit(f"there is no {program}: apt-get install slurm-wlm munge")
        for name in ("spool", "state"):
            (folder / name).mkdir(parents=True)
        (folder / "slurm.conf").write_text(CONF.format(host=socket.gethostname(), folder=folder))
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        os.environ |= self.env
        self.daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Slurm:
        if subprocess.run("munge -n | unmunge", shell=True, capture_output=True).returncode != 0:
            Path("/run/munge").mkdir(exist_ok=True)
            shutil.chown("/run/munge", "munge")
            self._start("runuser", "-u", "munge", "--", "munged", "--force", "--foreground")
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        end = time.monotonic() + 60
        while "idle" not in subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True).stdout:
            if time.monotonic() > end:
                raise SystemExit(f"Slurm did not start; see {self.folder}")
            time.sleep(0.5)
        return self

    def _start(self, *words: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log))

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self.daemons):
            for pid in (daemon.pid, *children({daemon.pid})):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait(20)

    def running(self) -> list[str]:
        words = ["squeue", "-h", "--array", "-o", "%i", "--states=running"]
        return subprocess.run(words, capture_output=True, text=True).stdout.split()


class Campaign(StudyCampaign):
    """The study under requeues and kills."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, STUDY)
        self.rng = random.Random(seed)
        self.requeues: list[str] = []
        self.kills = 0

    def disturbed(self, slurm: Slurm, requeues: int, kills: int) -> int:
        """Run the study as a Slurm array; requeue some of its jobs and kill some of its runs."""
        program = self.sweep("--launch", "slurm", RL_TRAINING_SLURM_SECONDS="1", **slurm.env)
        started = time.monotonic()
        while program.poll() is None:
            if time.monotonic() - started > MAX_SECONDS:
                program.kill()
                raise SystemExit("the study did not end in time")
            time.sleep(self.rng.uniform(1.0, 5.0))
            saved = {pid: name for pid, name in self.training().items() if self.study.newest_step(name)}
            jobs = slurm.running()
            if saved and self.kills < kills and self.rng.random() < 0.5:
                victim = self.rng.choice(sorted(saved))
                step = self.study.newest_step(saved[victim])
                kill([victim])
                self.kills += 1
                print(f"killed {saved[victim]} with a checkpoint of step {step}", flush=True)
            elif saved and jobs and len(self.requeues) < requeues:
                job = self.rng.choice(jobs)
                if subprocess.run(["scontrol", "requeue", job], capture_output=True).returncode == 0:
                    self.requeues.append(job)
                    print(f"requeued {job}", flush=True)
        return program.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requeues", type=int, default=4)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "slurm-campaign.json")
    parser.add_argument("--keep", type=Path, help="work in this directory and keep it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slurm-campaign-") as temporary:
        folder = (args.keep or Path(temporary)).absolute()
        campaign = Campaign(folder, args.seed)
        whole = campaign.undisturbed()
        with Slurm(folder / "slurm") as slurm:
            started = time.monotonic()
            code = campaign.disturbed(slurm, args.requeues, args.kills)
            seconds = time.monotonic() - started
        differences = campaign.differences()
    unequal = {name: found for name, found in differences.items() if found}
    done = f"its jobs requeued {len(campaign.requeues)} times and its runs killed {campaign.kills} times"
    result = {
        "what": f"a study of {len(differences)} runs in a real Slurm on one machine, {done}",
        "reached": reached(unequal),
        "runs": len(differences),
        "exit_code": code,
        "requeues": campaign.requeues,
        "kills": campaign.kills,
        "unequal_runs": unequal,
        "undisturbed_s": round(whole),
        "disturbed_s": round(seconds),
        "slurm": subprocess.run(["slurmctld", "-V"], capture_output=True, text=True).stdout.strip(),
        "study": STUDY,
    }
    write_result(args.output, result)
    print(f"{len(campaign.requeues)} requeues, {campaign.kills} kills, {len(differences)} runs, {len(unequal)} unequal")
    enough = len(campaign.requeues) == args.requeues and campaign.kills == args.kills
    return int(bool(unequal) or code != 0 or not enough)


if __name__ == "__main__":
    sys.exit(main())
