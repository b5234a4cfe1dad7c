"""Pushes agents to the Hugging Face Hub and pulls them; needs the package huggingface_hub."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.config.objects import Objects
from rl_training.core.checks import Note, UserError, one_line, require
from rl_training.deploy.hub.card import (
    AGENT,
    CARD,
    CONFIG,
    MANIFEST,
    RESULTS,
    SHARED,
    VIDEO,
    card_text,
    check_manifest,
    config_text,
    manifest,
    shared_config,
)
from rl_training.envs.host.factory import EnvFactory, env_source, split_env
from rl_training.envs.host.vector import EnvironmentFailure
from rl_training.files.atomic import (
    DISK_ERRORS,
    MAX_JSON_BYTES,
    finite,
    parse_json,
    read_bytes,
    read_json,
    replace_files,
    to_json,
)
from rl_training.run.agent import Agent, load_agent
from rl_training.run.artifacts import record_video
from rl_training.run.workflows import evaluate_agent

MAX_FILE_BYTES = 2**31


def push_agent(
    agent: Agent,
    repo: str,
    *,
    episodes: int = 20,
    video: bool = True,
    private: bool = False,
    seed_index: int = 0,
    env: str | EnvFactory | None = None,
    endpoint: str | None = None,
) -> str:
    """Push one seed's agent with its config, a fresh evaluation, a card and a video; returns the address.

    `episodes` 0: without an evaluation. A video that cannot be recorded is left out with a note. `endpoint`: another
    address of a hub.
    """
    require(episodes >= 0, "num_episodes", f">= 0, got {episodes}")
    api = _api(endpoint)
    _check_name(repo, api.endpoint)  # before the evaluation, which may take long
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shared = _shared_agent(agent, seed_index, folder)
        source = env_source(shared.config, *(split_env(env) if env is not None else (None, None)))
        results = evaluate_agent(shared, source, episodes, return_episodes=True) if episodes else {}
        if video:
            _record(shared, source, folder / VIDEO)
        (folder / CONFIG).write_bytes(config_text(shared))
        (folder / RESULTS).write_bytes(to_json(finite(results), indent=2))
        (folder / CARD).write_text(card_text(shared, repo, results), encoding="utf-8")
        files = {one.name: one.read_bytes() for one in sorted(folder.iterdir())}
        (folder / MANIFEST).write_bytes(to_json(manifest(files, shared), indent=2))
        with _one_line_errors(repo, api.endpoint):
            api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"{shared.config.algo} agent")
    return f"{api.endpoint}/{repo}"


def _shared_agent(agent: Agent, seed_index: int, folder: Path) -> Agent:
    """The agent as it is shared: of one seed, without paths of this machine."""
    one = Agent(shared_config(agent.config), agent.learner, agent.observation, agent.action, agent.step)
    return load_agent(one.save(folder / AGENT, seed_index), objects=agent.objects)


def _record(agent: Agent, source: Any, path: Path) -> None:
    try:
        record_video(agent, source, path)
    except (UserError, EnvironmentFailure) as error:
        warnings.warn(f"no video: {error}", Note, stacklevel=3)


def pull_agent(
    repo: str,
    folder: str | Path,
    *,
    revision: str | None = None,
    endpoint: str | None = None,
    objects: Objects | None = None,
) -> Path:
    """Pull an agent into a folder and return its file: known files only, their digests checked, nothing executed.

    `objects`: the classes and functions of its settings that it only names, as for `load_agent`.
    """
    api, folder = _api(endpoint), Path(folder)
    _check_overwritten(folder)
    with tempfile.TemporaryDirectory() as place:

        def download(name: str, commit: str | None) -> Path:
            with _one_line_errors(repo, api.endpoint):
                found = api.hf_hub_download(repo, name, revision=commit, local_dir=place)
            return Path(found)

        with _one_line_errors(repo, api.endpoint):
            about = api.repo_info(repo, revision=revision, files_metadata=True)
        commit = about.sha  # so that all files are of one commit
        for one in about.siblings or ():
            if one.rfilename in (*SHARED, MANIFEST) and (one.size or 0) > MAX_FILE_BYTES:
                raise UserError(f"{repo}: {one.rfilename} has {one.size} bytes, at most {MAX_FILE_BYTES} are expected")
        # The manifest is kept: with it, the folder can be checked again.
        files = {MANIFEST: read_bytes(download(MANIFEST, commit).resolve(), MAX_JSON_BYTES)}
        digests = check_manifest(parse_json(files[MANIFEST], f"{repo}: {MANIFEST}"), repo)
        for name, digest in digests.items():
            files[name] = read_bytes(download(name, commit).resolve(), MAX_FILE_BYTES)
            if hashlib.sha256(files[name]).hexdigest() != digest:
                raise UserError(f"{repo}: {name} is damaged (sha256)")
        try:
            # A file that is no agent is rejected before anything is written.
            load_agent(Path(place) / AGENT, objects=objects)
        except UserError as error:
            raise UserError(f"{repo}: {str(error).replace(f'{Path(place) / AGENT}', AGENT)}") from error
    try:
        replace_files({folder / name: data for name, data in files.items()})
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from error
    return folder / AGENT


def _check_overwritten(folder: Path) -> None:
    """Reject a folder with files of the user; one that was pulled before may be pulled again."""
    there = next((name for name in SHARED if (folder / name).exists()), None)
    if there is not None:
        try:
            check_manifest(read_json(folder / MANIFEST), str(folder))
        except (OSError, UserError) as error:
            raise UserError(f"{folder / there}: would be overwritten; choose another folder") from error


def _api(endpoint: str | None) -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]
    except ImportError as error:
        raise UserError("the hub needs pip install 'rl-training[hub]'") from error
    disable_progress_bars()
    return huggingface_hub.HfApi(endpoint=endpoint, library_name="rl-training")


def _check_name(repo: str, endpoint: str) -> None:
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    with _one_line_errors(repo, endpoint):
        validate_repo_id(repo)


@contextmanager
def _one_line_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Errors of the hub and of the network as one line."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        raise UserError(f"{repo}: not a name of a repository, such as me/my-agent") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"{repo}: no such repository at {endpoint}, or no permission (`hf auth login`)") from error
    except errors.LocalEntryNotFoundError as error:  # an EntryNotFoundError, too
        raise UserError(f"{endpoint} cannot be reached ({one_line(error)[:120]})") from error
    except errors.EntryNotFoundError as error:
        raise UserError(f"{repo}: not an agent of this library ({one_line(error)[:120]})") from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "")
        raise UserError(f"{repo}: {endpoint} answered {status} ({one_line(error)[:120]})") from error
    except UserError:
        raise
    except Exception as error:  # of the network: its library has its own exceptions
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise
        raise UserError(f"{endpoint} cannot be reached ({type(error).__name__}: {one_line(error)[:120]})") from error
