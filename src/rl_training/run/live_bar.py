"""The live progress bar on a terminal, drawn by rich, which is only imported for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from rl_training.run.progress import is_terminal


class LiveBar(Progress):
    """One line with label, bar and status, a second with the latest values. Names are never parsed as markup."""

    def __init__(self, label: str, total: int, stream: TextIO) -> None:
        super().__init__(
            TextColumn("{task.description} ", style="bold", markup=False),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=10)),
            # The status is passed as text: plain lines show the same without rich, and rich's own speed includes
            # compiling and has no estimate where a step takes longer than its window.
            TextColumn(" {task.fields[status]}", markup=False),
            console=Console(file=stream),
            auto_refresh=False,
            expand=True,
            # rich would send redirected output (`train > log`) to the terminal instead of the file.
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=is_terminal(sys.stderr),
        )
        self._task = self.add_task(label, total=max(total, 1), status="", latest="")

    def show(self, step: int, status: str, latest: str) -> None:
        """Redraw; the first call opens the display."""
        self.update(self._task, completed=step, status=status, latest=latest)
        if self.live.is_started:
            self.refresh()
        else:
            self.start()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(task.fields["latest"], style="dim", no_wrap=True, overflow="ellipsis")

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        self.console.print(message, markup=False, highlight=False, soft_wrap=True)
