"""The page of a prediction server: the contract of its agent, and a form to try an observation."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; color: #1c2733; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d7dee6; vertical-align: top; }
textarea { width: 100%; box-sizing: border-box; font: 13px/1.4 ui-monospace, monospace; min-height: 8rem; }
button { font: inherit; padding: .4rem 1.2rem; margin: .5rem 0; }
pre { background: #f2f5f8; padding: .8rem; overflow-x: auto; white-space: pre-wrap; word-break: break-word; }
.wrong { color: #a4161a; }
td.long { overflow-wrap: anywhere; }
@media (max-width: 600px) { th, td { font-size: 13px; padding: .3rem; } }
"""
SCRIPT = """
const form = document.getElementById("try"), answer = document.getElementById("answer");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  answer.className = "";
  try {
    const reply = await fetch("/predict", {
      method: "POST", headers: {"Content-Type": "application/json"}, body: document.getElementById("request").value,
    });
    const found = await reply.json();
    answer.textContent = reply.ok ? JSON.stringify(found, null, 1) : found.error;
    answer.className = reply.ok ? "" : "wrong";
  } catch (error) {
    answer.textContent = "The server does not answer.";
    answer.className = "wrong";
  }
});
"""


def page(contract: Mapping[str, Any], example: Mapping[str, Any]) -> str:
    """The page as HTML that loads nothing from elsewhere; every text of the agent is escaped."""
    name = html.escape(f"{contract['algorithm']} for {contract['environment']['id']}")
    about = {
        "algorithm": contract["algorithm"],
        "environment": contract["environment"]["id"],
        "steps of training": contract["agent"]["step"],
        "seed": contract["agent"]["seed"],
        "digest": contract["agent"]["sha256"],
        "library": contract["library"],
    }
    facts = "".join(
        f'<tr><th>{html.escape(key)}</th><td class="long">{html.escape(str(one))}</td></tr>'
        for key, one in about.items()
    )
    arrays = "".join(f"<h2>{title}</h2>{_table(contract[title.lower()])}" for title in ("Inputs", "Outputs"))
    request = html.escape(json.dumps(example, indent=1) if len(json.dumps(example)) < 2000 else json.dumps(example))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        '<link rel="icon" href="data:,">'  # or a browser asks for /favicon.ico
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f"<h1>{name}</h1><table>{facts}</table>{arrays}"
        '<h2>Try it</h2><form id="try"><label for="request">A request, as JSON: one observation or a batch</label>'
        f'<textarea id="request" spellcheck="false">{request}</textarea><button type="submit">Predict</button></form>'
        '<pre id="answer" aria-live="polite">The answer appears here.</pre>'
        '<p><a href="/contract">The contract as JSON</a></p>'
        f"<script>{SCRIPT}</script></body></html>"
    )


def _table(arrays: list[dict[str, Any]]) -> str:
    bounds = [name for name in ("low", "high") if any(one.get(name) is not None for one in arrays)]
    names = ("name", "shape", "dtype", *bounds, "meaning")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_short(one.get(key)))}</td>" for key in names) + "</tr>" for one in arrays
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _short(value: Any) -> str:
    text = "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 120 else text[:117] + "..."
