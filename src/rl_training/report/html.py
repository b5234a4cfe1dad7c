"""Pieces of HTML that all pages share: the page itself, tables, and videos."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from rl_training.report.chart_style import CHART_CSS
from rl_training.report.style import PAGE_CSS


def page(title: str, body: str, *, refresh: float | None = None, script: str = "") -> str:
    """A self-contained page: nothing is loaded from elsewhere, and no script runs but the one given."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'; media-src data:"
    policy += f"; script-src 'sha256-{digest}'" if script else ""
    again = f'<meta http-equiv="refresh" content="{max(1, round(refresh))}">' if refresh is not None else ""
    end = f"<script>{script}</script>" if script else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">{again}
<style>{PAGE_CSS}{CHART_CSS}</style></head><body><main>
{body}
</main>{end}</body></html>
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "cells") -> str:
    """A table whose first column names the rows; it scrolls sideways on its own, by keyboard too."""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    label = escape(head[0] if head else "")
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="table of {label}"><table class="{kind}">'
        f"<thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def data_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The numbers of a chart, folded until they are opened."""
    return f'<details class="data"><summary>Table</summary>{table(head, rows)}</details>'


def card(content: str, more: str = "") -> str:
    """A box of a page; one that scrolls sideways does so by keyboard too."""
    focus = ' tabindex="0"' if "scroll" in more.split() else ""
    return f'<div class="card{" " + more if more else ""}"{focus}>{content}</div>'


def callout(tone: str, head: str, text: str) -> str:
    """A remark that should not be missed."""
    return f'<p class="card callout {tone}"><b>{escape(head)}.</b> {escape(text)}</p>'


def video_card(title: str, video: bytes) -> str:
    """A video inside the page."""
    data = base64.b64encode(video).decode("ascii")
    return card(
        f"<b>{escape(title)}</b><video controls autoplay loop muted playsinline "
        f'aria-label="{escape(title)}" src="data:video/webm;base64,{data}"></video>',
        "chart",
    )
