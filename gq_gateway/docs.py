"""The document and the page made of it, as handlers. The page is plain HTML and CSS from here: it works offline, no scripts."""

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any, Final

import msgspec

from gq_gateway.call import Call
from gq_gateway.openapi import document
from gq_gateway.table import Raw, Route
from gq_proto import __version__

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
DEPTH_MAX: Final = 6


async def openapi(call: Call) -> Raw:
    return Raw("application/json", _encoded(tuple(call.gateway.routes)))


async def page(call: Call) -> Raw:
    call.headers |= {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
    return Raw("text/html; charset=utf-8", _page(tuple(call.gateway.routes)))


@lru_cache(4)
def _encoded(routes: tuple[Route, ...]) -> bytes:
    return msgspec.json.encode(document(routes, __version__))


@lru_cache(4)
def _page(routes: tuple[Route, ...]) -> bytes:
    return render(document(routes, __version__)).encode()


# -- the page ----------------------------------------------------------------------------------

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; display: grid; grid-template-columns: 17rem minmax(0, 1fr); }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; padding: 1rem; border-right: 1px solid var(--line);
      font-size: 13px; }
nav a { display: block; text-decoration: none; color: inherit; padding: 1px 0; white-space: nowrap; overflow: hidden;
        text-overflow: ellipsis; }
nav a:hover { text-decoration: underline; }
main { padding: 1rem 2rem 6rem; max-width: 62rem; }
h1 { margin-top: 0; } h2 { margin-top: 2.5rem; } h3 { font-size: 1rem; margin: .8rem 0 .3rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem;
      white-space: pre-wrap; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; }
summary { padding: .5rem .8rem; cursor: pointer; } details > div { padding: 0 .8rem .8rem; border-top: 1px solid var(--line);
        scroll-margin-top: 3rem; }
.method { display: inline-block; min-width: 4.5rem; font: bold 12px ui-monospace, monospace; }
.GET { color: #2a7de1; } .POST { color: #1a9850; } .DELETE { color: #d73027; } .PATCH { color: #b8860b; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0;
        border-bottom: 1px solid var(--line); font-weight: normal; } th { opacity: .65; }
.soft { opacity: .7; }
@media (max-width: 50rem) { body { display: block; } nav { display: none; } main { padding: 1rem; } }
"""


def render(spec: dict[str, Any]) -> str:
    """An OpenAPI document (of ours) as a page."""
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag["name"]: [] for tag in spec["tags"]}
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            by_tag[operation["tags"][0]].append((method.upper(), path, operation))
    info = spec["info"]
    links = "".join(f"<p><b>{escape(tag)}</b>{''.join(_link(*row) for row in rows)}</p>" for tag, rows in by_tag.items())
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(_section(spec, *row) for row in rows)}" for tag, rows in by_tag.items())
    return (f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(info['title'])} API</title>"
            f"<meta name=viewport content='width=device-width'><link rel=icon href='data:,'><style>{STYLE}</style></head>"
            f"<body><nav>{links}</nav><main><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
            f"<p>{escape(info['description'])}</p><p>Every path also answers below <code>/v1</code>. "
            f"Machine-readable: <a href=openapi.json>openapi.json</a>.</p>{parts}{_codes(spec)}</main></body></html>\n")


def _link(method: str, path: str, operation: dict[str, Any]) -> str:
    return f"<a href='#{operation['operationId']}'><span class='method {method}'>{method}</span>{escape(path)}</a>"


def _section(spec: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    inside = _parameters(operation) + _body(spec, operation) + _answers(spec, operation)
    return (f"<details><summary><span class='method {method}'>{method}</span> <code>{escape(path)}</code> "
            f"<span class=soft>{escape(operation['summary'])}</span></summary>"
            f"<div id='{operation['operationId']}'>{inside}</div></details>")     # a link to what is inside opens it


def _parameters(operation: dict[str, Any]) -> str:
    rows = "".join(f"<tr><td><code>{escape(one['name'])}</code></td><td>{one['in']}</td><td><code>{escape(_kind(one['schema']))}"
                   f"</code></td><td>{escape(one.get('description', ''))}{_default(one['schema'])}</td></tr>"
                   for one in operation.get("parameters", []))
    head = "<tr><th>name</th><th>in</th><th>type</th><th></th></tr>"
    return f"<h3>Parameters</h3><table>{head}{rows}</table>" if rows else ""


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default in (None, "", []) else f" <span class=soft>(default: {escape(_json(default))})</span>"


def _body(spec: dict[str, Any], operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    if not body:
        return ""
    title = "Body" if body["required"] else "Body (optional)"
    return f"<h3>{title}</h3>" + "".join(_schema(spec, content["schema"]) for content in body["content"].values())


def _answers(spec: dict[str, Any], operation: dict[str, Any]) -> str:
    rows, shapes = "", ""
    for status, answer in operation["responses"].items():
        rows += f"<tr><td>{status}</td><td>{escape(answer['description'])}</td></tr>"
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if schema and status.startswith("2") and not shapes:
            shapes = _schema(spec, schema)
    return f"<h3>Answer</h3>{shapes}<table>{rows}</table>"


def _schema(spec: dict[str, Any], schema: dict[str, Any]) -> str:
    return "".join(f"{_about(spec, one)}<pre>{escape(shape(spec, one))}</pre>" for one in schema.get("anyOf", [schema]))


def _about(spec: dict[str, Any], schema: dict[str, Any]) -> str:
    text = _resolved(spec, schema).get("description", "")
    return f"<p>{escape(text)}</p>" if text else ""


def shape(spec: dict[str, Any], schema: dict[str, Any], indent: str = "", depth: int = 0) -> str:
    """A schema as a JSON-like text: names, types, what they mean."""
    found = _resolved(spec, schema)
    if found.get("type") == "object" and found.get("properties") and depth < DEPTH_MAX:
        lines = [f"{indent}  {name}{'' if name in found.get('required', ()) else '?'}: "
                 f"{shape(spec, one, indent + '  ', depth + 1)}{_remark(one)}" for name, one in found["properties"].items()]
        return "{\n" + "\n".join(lines) + f"\n{indent}}}"
    if found.get("type") == "array" and isinstance(found.get("items"), dict):
        return f"[{shape(spec, found['items'], indent, depth + 1)}, ...]"
    return _kind(found)


def _remark(schema: dict[str, Any]) -> str:
    text = schema.get("description", "")
    return f"    // {text}" if text else ""


def _resolved(spec: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = spec["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(_json(one) for one in schema["enum"])
    if "prefixItems" in schema:
        return f"[{', '.join(_kind(one) for one in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        return f"[{_kind(schema['items']) if isinstance(schema.get('items'), dict) else ''}, ...]"
    if schema.get("type") == "object" and "additionalProperties" in schema:
        return f"{{name: {_kind(schema['additionalProperties'])}}}" if schema["additionalProperties"] else "{}"
    return str(schema.get("type", "any"))


def _codes(spec: dict[str, Any]) -> str:
    codes: Sequence[str] = spec["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]
    return f"<h2>Error codes</h2><p>{', '.join(f'<code>{escape(code)}</code>' for code in codes)}</p>"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
