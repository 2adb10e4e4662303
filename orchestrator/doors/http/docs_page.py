"""The page at /docs: the OpenAPI document for people, as plain HTML. It runs no script, and loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
summary { cursor: pointer; padding: .3rem 0 } code, pre { font: 13px/1.4 ui-monospace, monospace }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
.method { display: inline-block; width: 4.5rem; font-weight: 600 }
"""

KEY_LINE: Final = '-H "authorization: Bearer $(toolfleet keys local)"'


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """Show what may be asked here."""
    return HTMLResponse(page(request.app.openapi(), str(request.base_url).rstrip("/")), headers=HEADERS)


def page(document: dict[str, Any], url: str) -> str:
    """Return an OpenAPI document as a page; `url` is where its examples ask."""
    info = document["info"]
    title = f"{info['title']} {info['version']}"
    return "".join(
        (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>",
            f"<h1>{escape(title)}</h1><p>{escape(info['description'])}</p>",
            '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>',
            *_operations(document, url),
            "<h2>What is sent and answered</h2>",
            *(
                _folded(f"<code id={escape(name)!r}>{escape(name)}</code>", _json(schema))
                for name, schema in sorted(document["components"]["schemas"].items())
            ),
        )
    )


def _operations(document: dict[str, Any], url: str) -> Iterator[str]:
    heading = ""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = operation.get("tags", [""])[0]
            if tag != heading:
                yield f"<h2>{escape(tag)}</h2>"
                heading = tag
            label = (
                f"<span class=method>{method.upper()}</span><code>{escape(path)}</code> {escape(operation['summary'])}"
            )
            yield _folded(label, _operation(method, f"{url}{path}", operation))


def _operation(method: str, address: str, operation: dict[str, Any]) -> str:
    rows = [
        (each["name"], f"{each['in']}{', needed' if each.get('required') else ''}", each.get("description", ""))
        for each in operation.get("parameters", ())
    ]
    rows += [(status, "", response["description"]) for status, response in operation["responses"].items()]
    table = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}" for row in rows)
    body = operation.get("requestBody")
    return (
        f"<p>{escape(operation.get('description', ''))}</p><pre>{escape(_curl(method, address, has_body=bool(body)))}"
        f"</pre><table>{table}</table>{_json(body['content']) if body else ''}"
    )


def _curl(method: str, address: str, *, has_body: bool) -> str:
    lines = [f"curl -X {method.upper()} '{address}'", KEY_LINE]
    return " \\\n  ".join([*lines, "-H 'content-type: application/json' -d '{…}'"] if has_body else lines)


def _folded(label: str, content: str) -> str:
    return f"<details><summary>{label}</summary>{content}</details>"


def _json(value: Any) -> str:
    return f"<pre>{escape(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())}</pre>"
