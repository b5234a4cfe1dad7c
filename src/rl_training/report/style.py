"""The report's style sheet."""

from __future__ import annotations

PAGE_CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1b2230; --muted: #667085; --edge: #e3e6eb;
  --grid: #edeff3; --axis: #b8bfca; --accent: #2f6fdb; --accent-2: #c2571b; --good: #1a7f4b; --warn: #9a6700;
  --bad: #c2303b; --accent-3: #1a7f4b; --accent-4: #a13d97; --accent-5: #0e8a9c; --accent-6: #9a6700;
  --accent-7: #c2303b; }
@media (prefers-color-scheme: dark) { :root { --page: #11151c; --card: #191f29; --text: #e4e8ef; --muted: #95a0b2;
  --edge: #2a3240; --grid: #252d3a; --axis: #4c586b; --accent: #6ea6ff; --accent-2: #f09a5f; --good: #4cc38a;
  --warn: #e0b03c; --bad: #ff7a80; --accent-3: #4cc38a; --accent-4: #e08bd6; --accent-5: #4cc7d9;
  --accent-6: #e0b03c; --accent-7: #ff7a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 14px; margin: 0; font-size: 28px; line-height: 1.2;
  font-weight: 650; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { margin: 40px 0 14px; font-size: 17px; font-weight: 650; letter-spacing: -.005em; }
.about { margin: 6px 0 24px; color: var(--muted); } .constant { margin: 16px 0 0; }
.status { padding: 3px 11px; border-radius: 99px; font-size: 13px; font-weight: 600; letter-spacing: 0;
  color: var(--tone); background: color-mix(in srgb, var(--tone) 13%, transparent); }
.finished { --tone: var(--good); } .running { --tone: var(--accent); } .stopped, .interrupted { --tone: var(--warn); }
.failed { --tone: var(--bad); } .unknown { --tone: var(--muted); }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 12px; padding: 18px 20px; min-width: 0; }
.callout { margin: 0 0 16px; padding: 12px 18px; border-left: 4px solid var(--tone); border-radius: 6px 12px 12px 6px;
  overflow-wrap: anywhere; }
.tiles { display: grid; gap: 1px; margin: 0; padding: 0; overflow: hidden;
  grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); }
.tiles.six { grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }
.tile { padding: 16px 20px; box-shadow: 0 0 0 1px var(--edge); }
.tile dt { color: var(--muted); font-size: 13px; } .tile dd { margin: 0; }
.tile .value { font-size: 24px; line-height: 1.3; font-weight: 600; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; }
.tile small { color: var(--muted); font-size: 16px; font-weight: 500; white-space: nowrap; }
.tile .detail { min-height: 1.5em; color: var(--muted); font-size: 12.5px; }
.row { display: grid; gap: 16px; margin-top: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.multiples { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); margin-top: 0; }
.scroll { overflow-x: auto; } .scroll .chart { min-width: 720px; }
.scroll figcaption { position: sticky; left: 0; max-width: calc(100vw - 60px); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.filters { display: flex; flex-wrap: wrap; align-items: center; gap: 10px 18px; margin: 0 0 16px; color: var(--muted); }
.filters input, .filters select { font: inherit; max-width: 100%; color: var(--text); background: var(--card);
  padding: 3px 8px; border: 1px solid var(--edge); border-radius: 6px; }
[hidden] { display: none !important; } a { color: var(--accent); }
h3 { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 12px; margin: 0; font-size: 17px;
  scroll-margin: 16px; }
.prose td { white-space: normal; min-width: 220px; }
.spaced { margin-top: 16px; } .bars meter { width: 100%; } .bars th:nth-child(2) { width: 60%; }
.empty { margin: 0; padding: 28px 0; text-align: center; color: var(--muted); }
video { display: block; width: 100%; max-height: 420px; margin-top: 10px; border-radius: 8px;
  border: 1px solid var(--edge); }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 14px 7px 0; text-align: left; vertical-align: top; border-top: 1px solid var(--edge); }
tr:first-child > * { border-top: 0; }
th { color: var(--muted); font-size: 13px; font-weight: 500; white-space: nowrap; }
td { overflow-wrap: anywhere; } .numbers :not(:last-child) { text-align: right; }
.numbers th, .numbers td { padding-left: 14px; }
.facts th { width: 150px; line-height: 23px; }
.cells th, .cells td { white-space: nowrap; overflow-wrap: normal; text-align: right; padding: 7px 0 7px 16px; }
.cells th[scope="row"] { color: var(--text); } .cells tr > :first-child { text-align: left; padding-left: 0; }
.wrap th[scope="row"], .wrap td:not(:last-child) { white-space: normal; overflow-wrap: anywhere; }
.words td, .words th { text-align: left; } td > code { overflow-wrap: anywhere; }
@media (max-width: 560px) { main { padding: 24px 14px 48px; } .facts, .facts tbody, .facts tr, .facts th, .facts td {
  display: block; width: auto; } .facts td { border-top: 0; padding-top: 0; } .card { padding: 14px; }
  .cells tr > :first-child { white-space: normal; } }
code, pre { font: 13px/1.6 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace; }
pre { margin: 14px 0 0; overflow-x: auto; } summary { cursor: pointer; font-weight: 600; }
details.card { margin-top: 16px; }
"""
