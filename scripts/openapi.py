"""What the writers of clients read of the OpenAPI document: operations, and the properties of schemas."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

JSON = "application/json"
Schema = dict[str, Any]


@dataclass
class Operation:
    """A method of the API."""

    name: str
    method: str
    path: str
    text: str
    in_path: list[tuple[str, Schema]]
    query: list[tuple[str, Schema]]
    body: Schema | None
    result: Schema | None
    is_text: bool


def operations(document: Schema) -> list[Operation]:
    """Every operation, in the order of the paths. The names must differ."""
    found: dict[str, Operation] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = operation["operationId"]
            if name in found:
                sys.exit(f"{method} {path}: the operation ID {name} is also that of {found[name].path}")
            parameters = operation.get("parameters", [])
            named = re.findall(r"{\*?(\w+)}", path)
            in_path = [(each["name"], each["schema"]) for each in parameters if each["in"] == "path"]
            if [one for one, _ in in_path] != named:
                sys.exit(f"{method} {path}: its parameters in the path are described as {in_path}")
            good = next(answer for status, answer in operation["responses"].items() if status < "300")
            [(kind, content)] = good.get("content", {"": {}}).items()
            request = operation.get("requestBody", {}).get("content", {})
            found[name] = Operation(
                name=name,
                method=method.upper(),
                path=path.replace("{*", "{"),
                text=operation.get("summary") or operation.get("description", ""),
                in_path=in_path,
                query=[(each["name"], each["schema"]) for each in parameters if each["in"] == "query"],
                body=request[JSON]["schema"] if request else None,
                result=content.get("schema"),
                is_text=kind not in ("", JSON),
            )
    return list(found.values())


def reference(schema: Schema) -> str:
    """The schema that `$ref` names."""
    return str(schema["$ref"].rsplit("/", 1)[1])


def bases(schema: Schema) -> list[str]:
    """The types whose properties an object has too."""
    return [reference(part) for part in schema.get("allOf", []) if "$ref" in part]


def properties(schema: Schema) -> list[tuple[str, Schema, bool]]:
    """Names, schemas of an object's own properties, and whether they are always there."""
    parts = [one for part in schema.get("allOf", []) for one in properties(part)]
    always = schema.get("required", [])
    return parts + [(name, one, name in always) for name, one in schema.get("properties", {}).items()]


def is_object(schema: Schema) -> bool:
    """Whether a schema has named properties."""
    return "properties" in schema or "allOf" in schema


def sentence(text: str) -> str:
    """A description in one paragraph."""
    return " ".join(text.split())
