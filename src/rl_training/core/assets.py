"""Files that ship inside the package."""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).parent.parent / "assets"


def find_packaged_asset(name: str | Path) -> Path | None:
    """The path of a packaged file such as `configs/dqn/cartpole.yaml`; None if the package has no such file."""
    parts = Path(name).parts
    if ".." in parts or Path(name).is_absolute():
        return None
    path = ASSETS.joinpath(*parts)
    return path if path.is_file() else None


def packaged_configs() -> list[Path]:
    """The paths of all packaged configs, sorted."""
    return sorted((ASSETS / "configs").glob("*/*.yaml"))
