"""Files with one JSON object per line, as a run writes them; the last line may be incomplete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROW_KEYS = ("step", "seed")  # of a metric row; its other keys are metrics


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file; lines that are none, such as one cut short by a kill, are skipped."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict):
                    yield row
