#!/usr/bin/env python3
"""Writes the clients of the control API from its OpenAPI document.

    ringway openapi | scripts/clients.py            writes those in python/ringway and clients
    ringway openapi | scripts/clients.py --check    exit code 1 if one of them differs

A schema becomes a type, an operation a method named after its operation ID: path parameters in order, then
the body, then optional query parameters.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path

from ocaml_client import ocaml
from openapi import Operation, Schema, bases, is_object, operations, properties, reference, sentence

ROOT = Path(__file__).resolve().parent.parent


class Language:
    """How a language writes types."""

    simple: dict[str, str]
    union = " | "

    def array(self, item: str) -> str:
        """An array."""
        raise NotImplementedError

    def record(self, value: str) -> str:
        """An object with arbitrary names."""
        raise NotImplementedError

    def tuple(self, items: list[str]) -> str:
        """An array of fixed length."""
        raise NotImplementedError

    def literal(self, values: list[str]) -> str:
        """One of several strings."""
        raise NotImplementedError

    def type(self, schema: Schema) -> str:
        """The type of a schema."""
        if "$ref" in schema:
            return reference(schema)
        if "oneOf" in schema:
            return self.union.join(self.type(one) for one in schema["oneOf"])
        if "enum" in schema:
            return self.literal(schema["enum"])
        kinds = schema.get("type", "any")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        return self.union.join(self.of(kind, schema) for kind in kinds)

    def of(self, kind: str, schema: Schema) -> str:
        """The type of a schema of a kind."""
        if kind == "array" and schema.get("prefixItems"):
            return self.tuple([self.type(item) for item in schema["prefixItems"]])
        if kind == "array":
            return self.array(self.type(schema["items"]))
        values = schema.get("additionalProperties")
        if kind == "object":
            return self.record(self.type(values) if isinstance(values, dict) else self.simple["any"])
        return self.simple[kind]


class Python(Language):
    """Python's types."""

    simple = {
        "string": "str",
        "integer": "int",
        "number": "float",
        "boolean": "bool",
        "null": "None",
        "any": "Any",
    }

    def array(self, item: str) -> str:
        return f"list[{item}]"

    def record(self, value: str) -> str:
        return f"dict[str, {value}]"

    def tuple(self, items: list[str]) -> str:
        # JSON has no tuples.
        return f"list[{' | '.join(dict.fromkeys(items))}]"

    def literal(self, values: list[str]) -> str:
        return f"Literal[{', '.join(json.dumps(value) for value in values)}]"


class TypeScript(Language):
    """TypeScript's types."""

    simple = {
        "string": "string",
        "integer": "number",
        "number": "number",
        "boolean": "boolean",
        "null": "null",
        "any": "unknown",
    }

    def array(self, item: str) -> str:
        return f"({item})[]" if " " in item else f"{item}[]"

    def record(self, value: str) -> str:
        return f"Record<string, {value}>"

    def tuple(self, items: list[str]) -> str:
        return f"[{', '.join(items)}]"

    def literal(self, values: list[str]) -> str:
        return " | ".join(json.dumps(value) for value in values)


def python(document: Schema) -> str:
    """The Python module."""
    language, schemas = Python(), document["components"]["schemas"]
    out = [
        '"""The control API of a fabric: a type for each schema, a method for each operation.',
        "",
        "Written by scripts/clients.py from the OpenAPI document (`ringway openapi`).",
        '"""',
        "# fmt: off",
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any, Literal, NotRequired, TypedDict",
        "",
        "from .control_socket import ControlSocket",
        "",
    ]
    aliases = {name: schema for name, schema in schemas.items() if not is_object(schema)}
    for name, schema in aliases.items():
        out += [f"{name} = {language.type(schema)}", *python_text(schema.get("description", ""), ""), ""]
    for name, schema in schemas.items():
        if name not in aliases:
            out += python_object(name, schema, language)
    out += ["", "class Api:"]
    out += ['    """The operations of the API, over a control socket. For one thread."""', ""]
    out += ["    def __init__(self, socket: ControlSocket) -> None:", "        self._socket = socket"]
    for operation in operations(document):
        out += ["", *python_method(operation, language)]
    return "\n".join(out) + "\n"


def python_text(text: str, indent: str) -> list[str]:
    text = sentence(text)
    if not text:
        return []
    if len(indent) + len(text) + 6 <= 108:
        return [f'{indent}"""{text}"""']
    lines = textwrap.wrap(text, 108 - len(indent))
    return [f'{indent}"""{lines[0]}'.rstrip(), *(indent + line for line in lines[1:]), f'{indent}"""']


def python_object(name: str, schema: Schema, language: Language) -> list[str]:
    members = []
    for each, of, always in properties(schema):
        kind = language.type(of)
        members.append((each, kind if always else f"NotRequired[{kind}]", of.get("description", "")))
    text = python_text(schema.get("description", ""), "    ")
    if any(keyword.iskeyword(each) or not each.isidentifier() for each, *_ in members):
        # Types in a functional definition are evaluated at once, so they are in quotation marks.
        fields = [f"        {json.dumps(each)}: {json.dumps(kind)}," for each, kind, _ in members]
        text = python_text(schema.get("description", ""), "")
        return ["", f"{name} = TypedDict(", f'    "{name}",', "    {", *fields, "    },", ")", *text]
    fields = [
        line for each, kind, says in members for line in (f"    {each}: {kind}", *python_text(says, "    "))
    ]
    return ["", f"class {name}({', '.join(bases(schema)) or 'TypedDict'}):", *text, "", *fields, ""]


def python_method(operation: Operation, language: Language) -> list[str]:
    arguments = ["self", *(f"{name}: {language.type(schema)}" for name, schema in operation.in_path)]
    if operation.body is not None:
        arguments.append(f"body: {language.type(operation.body)}")
    if operation.query:
        arguments.append("*")
        for name, schema in operation.query:
            kind = language.type({**schema, "type": optional(schema)})
            arguments.append(f"{name}: {kind} = None")
    result = "str" if operation.is_text else language.type(operation.result) if operation.result else "None"
    name = f"{operation.name}_" if keyword.iskeyword(operation.name) else operation.name
    out = [f"    def {name}({', '.join(arguments)}) -> {result}:"]
    if len(out[0]) > 108:
        out = [f"    def {name}(", f"        {', '.join(arguments)}", f"    ) -> {result}:"]
    out += python_text(operation.text, "        ")
    template = re.sub(r"{\w+}", "{}", operation.path)
    call = [json.dumps(operation.method), json.dumps(template), f"[{names(operation)}]"]
    if operation.query:
        call.append("{" + ", ".join(f'"{name}": {name}' for name, _ in operation.query) + "}")
    if operation.body is not None:
        call.append("body=body")
    if result == "None":
        return [*out, f"        self._socket.call({', '.join(call)})"]
    read = "text" if operation.is_text else "json"
    return [
        *out,
        f"        found: {result} = self._socket.{read}({', '.join(call)})",
        "        return found",
    ]


def names(operation: Operation) -> str:
    """The parameters in an operation's path."""
    return ", ".join(name for name, _ in operation.in_path)


def optional(schema: Schema) -> list[str]:
    """The types of a query parameter that may be left out."""
    kinds = schema.get("type", "any")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return [*dict.fromkeys([*kinds, "null"])]


HEAD = "// Written by scripts/clients.py from the OpenAPI document (`ringway openapi`).\n"


def camel(name: str) -> str:
    """A method's name in JavaScript's manner."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def declarations(document: Schema) -> str:
    """The declarations of types for TypeScript."""
    language, schemas = TypeScript(), document["components"]["schemas"]
    out = [HEAD, 'import { ControlSocket } from "./control-socket.js";', ""]
    for name, schema in schemas.items():
        out += comment(schema.get("description", ""), "")
        if not is_object(schema):
            out += [f"export type {name} = {language.type(schema)};", ""]
            continue
        extends = f" extends {', '.join(bases(schema))}" if bases(schema) else ""
        out.append(f"export interface {name}{extends} {{")
        for each, of, always in properties(schema):
            out += comment(of.get("description", ""), "  ")
            key = each if each.isidentifier() else json.dumps(each)
            out.append(f"  {key}{'' if always else '?'}: {language.type(of)};")
        out += ["}", ""]
    out += ["/** The operations of the control API, over a control socket. */", "export class Api {"]
    out.append("  constructor(socket: ControlSocket);")
    for operation in operations(document):
        arguments = [f"{name}: {language.type(schema)}" for name, schema in operation.in_path]
        if operation.body is not None:
            arguments.append(f"body: {language.type(operation.body)}")
        if operation.query:
            kinds = [
                f"{name}?: {language.type({**one, 'type': optional(one)})}" for name, one in operation.query
            ]
            arguments.append(f"query?: {{ {'; '.join(kinds)} }}")
        result = (
            "string"
            if operation.is_text
            else language.type(operation.result) if operation.result else "void"
        )
        out += comment(operation.text, "  ")
        out.append(f"  {camel(operation.name)}({', '.join(arguments)}): Promise<{result}>;")
    return "\n".join([*out, "}", ""])


def comment(text: str, indent: str) -> list[str]:
    text = sentence(text).replace("*/", "* /")
    if len(indent) + len(text) + 7 <= 120:
        return [f"{indent}/** {text} */"] if text else []
    lines = textwrap.wrap(text, 117 - len(indent))
    return [f"{indent}/**", *(f"{indent} * {line}" for line in lines), f"{indent} */"]


def javascript(document: Schema) -> str:
    """The module for JavaScript."""
    out = [HEAD, "export class Api {", "  #socket;", "", "  constructor(socket) {"]
    out += ["    this.#socket = socket;", "  }"]
    for operation in operations(document):
        arguments = [
            *(name for name, _ in operation.in_path),
            *(["body"] if operation.body is not None else []),
        ]
        arguments += ["query = {}"] if operation.query else []
        template = re.sub(r"{\w+}", "{}", operation.path)
        options = [
            *(["query"] if operation.query else []),
            *(["body"] if operation.body is not None else []),
        ]
        call = [json.dumps(operation.method), json.dumps(template), f"[{names(operation)}]"]
        call += [f"{{ {', '.join(options)} }}"] if options else []
        read = "text" if operation.is_text else "json" if operation.result else "call"
        out += ["", f"  {camel(operation.name)}({', '.join(arguments)}) {{"]
        out += [f"    return this.#socket.{read}({', '.join(call)});", "  }"]
    return "\n".join([*out, "}", ""])


def main() -> int:
    """Writes or compares the files."""
    document = json.load(sys.stdin)
    files = {
        ROOT / "python/ringway/api.py": python(document),
        ROOT / "clients/typescript/api.d.ts": declarations(document),
        ROOT / "clients/typescript/api.js": javascript(document),
        ROOT / "clients/ocaml/api.ml": ocaml(document),
    }
    differ = [file for file, text in files.items() if not file.exists() or file.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        for file in differ:
            print(f"{file}: differs; write it by `ringway openapi | scripts/clients.py`", file=sys.stderr)
        return 1 if differ else 0
    for file in differ:
        file.write_text(files[file], "utf-8")
        print(file.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
