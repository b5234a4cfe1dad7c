"""A chart of `rl_training.report.charts` as an SVG file."""

from __future__ import annotations

from rl_training.report.chart_style import CHART_CSS


def standalone(chart: str) -> str:
    """The picture of a chart with its style sheet and colours."""
    svg = chart[chart.index("<svg") : chart.index("</svg>") + 6]
    colours = "--accent:#2563eb;--accent-2:#d97706;--grid:#e3e6eb;--axis:#98a2b3;--muted:#475467;--card:#fff"
    style = f"background:#fff;font-family:sans-serif;{colours}"  # an image takes no font from the page that shows it
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" style="{style}" '
    return svg.replace("<svg ", head, 1).replace(">", f"><style>{CHART_CSS}</style>", 1) + "\n"
