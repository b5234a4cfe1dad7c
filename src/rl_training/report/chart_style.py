"""The style sheet of charts; their colours are variables of the page's."""

from __future__ import annotations

COLORS = 8  # classes s0 to s7

CHART_CSS = """
.chart { margin: 0; }
.chart figcaption { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 10px; margin-bottom: 10px; }
.chart figcaption b { font-weight: 600; }
.chart figcaption span { color: var(--muted); font-size: 12px; }
.chart figcaption .key::before { content: ""; display: inline-block; width: 14px;
  height: 3px; border-radius: 2px; margin-right: 6px; vertical-align: middle; background: var(--line); }
.chart svg { display: block; width: 100%; height: auto; overflow: visible; }
.chart text { fill: var(--muted); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.chart figcaption .key.dashed::before { background: repeating-linear-gradient(90deg, var(--line) 0 5px,
  transparent 5px 8px); }
.s0 { --line: var(--accent); } .s1 { --line: var(--accent-2); } .s2 { --line: var(--accent-3); }
.s3 { --line: var(--accent-4); } .s4 { --line: var(--accent-5); } .s5 { --line: var(--accent-6); }
.s6 { --line: var(--accent-7); } .s7 { --line: var(--muted); }
.grid { stroke: var(--grid); } .axis { stroke: var(--axis); }
.line { fill: none; stroke: var(--line); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line.thin { stroke-width: 1; opacity: .38; } .line.dashed { stroke-width: 1.5; stroke-dasharray: 6 4; }
.bar { fill: var(--line); opacity: .75; }
.data { margin-top: 10px; } .data summary { color: var(--muted); font-size: 13px; font-weight: 500; }
.data .scroll { max-height: 320px; overflow: auto; margin-top: 8px; }
.band { fill: var(--line); opacity: .16; }
.dot { fill: var(--line); stroke: var(--card); stroke-width: 1.5; }
.spot rect { fill: transparent; } .spot line { stroke: var(--axis); stroke-dasharray: 3 3; }
.spot .dot, .spot line { opacity: 0; } .spot:hover .dot, .spot:hover line { opacity: 1; }
"""
