"""Writes the client of the control API in OCaml: a module for each schema, a function for each operation.

`clients.py` runs it. A schema's module has the type `t`, `of_json` and `to_json`; modules come before those
that use them, since OCaml's names must be known.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Any, Iterator

from openapi import Operation, Schema, is_object, operations, properties, reference, sentence

HEAD = "(* Written by scripts/clients.py from the OpenAPI document (`ringway openapi`). *)\n"
# Words of the language that properties of the API have, or may get.
WORDS = set(
    "and as assert class constraint do done downto else end exception external false for fun "
    "function functor if in include inherit initializer lazy let match method module mutable new "
    "nonrec object of open or private rec sig struct then to true try type val virtual when while "
    "with".split()
)
JSON = "Yojson.Safe.t"
SIMPLE = {"string": "string", "integer": "int", "number": "float", "boolean": "bool"}


def snake(name: str) -> str:
    """A value's name: that of a property, in OCaml's manner."""
    lower = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    return f"{lower}_" if lower in WORDS else lower


def module(name: str) -> str:
    """A module's name: that of a schema."""
    return name[0].upper() + name[1:]


def constructor(value: str) -> str:
    """The constructor of one of several strings."""
    return snake(value).rstrip("_").capitalize()


def nullable(schema: Schema) -> tuple[Schema, bool]:
    """A schema without `null`, and whether it had that."""
    if "oneOf" in schema:
        rest = [one for one in schema["oneOf"] if one.get("type") != "null"]
        return (rest[0] if len(rest) == 1 else {}), len(rest) < len(schema["oneOf"])
    kinds = schema.get("type")
    if not isinstance(kinds, list):
        return schema, False
    rest_of_kinds = [kind for kind in kinds if kind != "null"]
    one: Any = rest_of_kinds[0] if len(rest_of_kinds) == 1 else rest_of_kinds
    return {**schema, "type": one}, "null" in kinds


class Shape:
    """The type of a schema, and the functions that read and write it."""

    def __init__(self, schema: Schema) -> None:
        schema, is_nullable = nullable(schema)
        self.type, self.read, self.write = of(schema)
        # JSON as it is can be null itself.
        if is_nullable and self.type != JSON:
            self.type = f"{self.type} option"
            self.read, self.write = f"(Codec.nullable {self.read})", f"(Codec.of_nullable {self.write})"


def of(schema: Schema) -> tuple[str, str, str]:
    """The same of a schema that is not null."""
    if "$ref" in schema:
        name = module(reference(schema))
        return f"{name}.t", f"{name}.of_json", f"{name}.to_json"
    kind = schema.get("type")
    if kind == "array" and schema.get("prefixItems"):
        items = [Shape(item) for item in schema["prefixItems"]]
        names = [f"x{number}" for number in range(len(items))]
        pairs = list(zip(items, names))
        read = ", ".join(f"{item.read} {name}" for item, name in pairs)
        write = "; ".join(f"{item.write} {name}" for item, name in pairs)
        given = "; ".join(names)
        return (
            f"({' * '.join(item.type for item in items)})",
            f"(function `List [ {given} ] -> ({read}) | json -> Codec.wrong \"{len(items)} values\" json)",
            f"(fun ({', '.join(names)}) -> `List [ {write} ])",
        )
    if kind == "array":
        item = Shape(schema["items"])
        return f"{item.type} list", f"(Codec.list {item.read})", f"(Codec.of_list {item.write})"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        value = Shape(schema["additionalProperties"])
        return (
            f"(string * {value.type}) list",
            f"(Codec.assoc {value.read})",
            f"(Codec.of_assoc {value.write})",
        )
    if isinstance(kind, str) and kind in SIMPLE:
        simple = SIMPLE[kind]
        return simple, f"Codec.{simple}", f"Codec.of_{simple}"
    return JSON, "Fun.id", "Fun.id"


def uses(schema: Any) -> Iterator[str]:
    """The schemas that a schema names."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield reference(schema)
        for value in schema.values():
            yield from uses(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from uses(value)


def ordered(schemas: dict[str, Schema]) -> list[str]:
    """The schemas, each behind those that it names."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in found:
            for other in uses(schemas[name]):
                visit(other)
            found[name] = None

    for name in schemas:
        visit(name)
    return list(found)


def all_properties(schema: Schema, schemas: dict[str, Schema]) -> list[tuple[str, Schema, bool]]:
    """An object's properties, with those of the types that it extends."""
    inherited = [part for part in schema.get("allOf", []) if "$ref" in part]
    return [
        one for part in inherited for one in all_properties(schemas[reference(part)], schemas)
    ] + properties(schema)


def comment(text: str, indent: str) -> list[str]:
    """A documentation comment."""
    text = sentence(text).replace("{", "\\{").replace("}", "\\}").replace("[", "\\[").replace("]", "\\]")
    # A quotation mark would begin a string within the comment.
    text = text.replace('"', "''").replace("@", "\\@")
    lines = textwrap.wrap(f"(** {text} *)", 112 - len(indent), subsequent_indent="    ") if text else []
    return [indent + line for line in lines]


def choice(name: str, values: list[str], roles: Roles) -> list[str]:
    """The body of a module whose values are one of several strings."""
    out = ["  type t =", *(f"    | {constructor(value)}" for value in values)]
    out.append("    | Other of string  (** One that a later version has. *)")
    if name in roles.received:
        out += ["", "  let of_json json =", "    match Codec.string json with"]
        out += [f'    | "{value}" -> {constructor(value)}' for value in values]
        out.append("    | other -> Other other")
    if name in roles.sent:
        out += ["", "  let to_json = function"]
        out += [f'    | {constructor(value)} -> `String "{value}"' for value in values]
        out.append("    | Other other -> `String other")
    return out


@dataclass
class Field:
    """A property as a field of a record: its type, how it is read and written, and how `make` takes it."""

    name: str
    type: str
    read: str
    write: str
    argument: str
    text: str

    @classmethod
    def of(cls, key: str, schema: Schema, always: bool, is_change: bool) -> Field:
        """The field of a property. One of a change tells null from a value that is left out."""
        shape, name, text = Shape(schema), snake(key), schema.get("description", "")
        if always:
            read, write = f'Codec.field {shape.read} "{key}" json', f'Codec.some "{key}" {shape.write}'
            return cls(name, shape.type, read, f"{write} it.{name}", f"~{name}", text)
        inner, is_nullable = nullable(schema)
        kind, *both = (shape.type, shape.read, shape.write) if is_nullable and is_change else of(inner)
        how = ("present" if is_nullable and is_change else "optional", *both)
        read, write = f'Codec.{how[0]} {how[1]} "{key}" json', f'Codec.given "{key}" {how[2]} it.{name}'
        return cls(name, f"{kind} option", read, write, f"?{name}", text)


def filled(before: str, text: str, after: str) -> list[str]:
    """Words in lines of at most 110 columns; those after the first are indented below what is before them."""
    indent = " " * len(before)
    return textwrap.wrap(before + text + after, 110, subsequent_indent=indent, break_on_hyphens=False)


def record(name: str, schema: Schema, schemas: dict[str, Schema], roles: Roles) -> list[str]:
    """The body of a module whose values are objects."""
    is_change = name in roles.changes
    fields = [Field.of(*one, is_change) for one in all_properties(schema, schemas)]
    if not fields:
        return ["  type t = unit", "", "  let of_json _ = ()", "  let to_json () = `Assoc []"]
    out = ["  type t = {"]
    for field in fields:
        out += [f"    {field.name} : {field.type};", *comment(field.text, "        ")]
    out.append("  }")
    if name in roles.received:
        read = (f"      {one.name} = {one.read};" for one in fields)
        out += ["", "  let of_json json =", "    {", *read, "    }"]
    if name in roles.sent:
        out += ["", "  let to_json it =", "    Codec.record", "      ["]
        out += [*(f"        {one.write};" for one in fields), "      ]", ""]
        out += filled("  let make ", " ".join([*(one.argument for one in fields), "()"]), " =")
        out += filled("    { ", "; ".join(one.name for one in fields), " }")
    return out


def reached(firsts: list[Schema], schemas: dict[str, Schema]) -> set[str]:
    """The schemas that some name, or that are named by those."""
    found: set[str] = set()
    left = [name for first in firsts for name in uses(first)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += uses(schemas[name])
    return found


@dataclass
class Roles:
    """In which directions the schemas go."""

    sent: set[str]
    received: set[str]
    # Of requests that change only what they name.
    changes: set[str]

    @classmethod
    def of(cls, document: Schema, schemas: dict[str, Schema]) -> Roles:
        """The roles of a document's schemas."""
        every = operations(document)
        bodies = [(one.method, one.body) for one in every if one.body is not None]
        return cls(
            sent=reached([body for _, body in bodies], schemas),
            received=reached([one.result for one in every if one.result and not one.is_text], schemas),
            changes=reached([body for method, body in bodies if method == "PATCH"], schemas),
        )


def operation_lines(operation: Operation) -> list[str]:
    """A function for an operation: optional query parameters, the socket, names in the path, the body."""
    arguments = [f"?{snake(name)}" for name, _ in operation.query] + ["socket"]
    arguments += [snake(name) for name, _ in operation.in_path]
    arguments += ["body"] if operation.body is not None else []
    call = [f'Control_socket.call socket "{operation.method}" "{re.sub(r"{[^}]*}", "{}", operation.path)}"']
    call.append("[ " + "; ".join(snake(name) for name, _ in operation.in_path) + " ]")
    given = []
    for name, schema in operation.query:
        kind = SIMPLE[nullable(schema)[0]["type"]]
        given.append(f'Codec.parameter "{name}" Codec.text_of_{kind} {snake(name)}')
    extra = []
    if given:
        extra.append("~query:(List.concat [ " + "; ".join(given) + " ])")
    if operation.body is not None:
        extra.append(f"~body:({Shape(operation.body).write} body)")
    text = " ".join([call[0], *extra, call[1]])
    if operation.is_text:
        result = text
    elif operation.result:
        result = f"{Shape(operation.result).read} (Codec.parsed ({text}))"
    else:
        result = f"ignore ({text})"
    out = comment(operation.text, "")
    return [*out, f"let {snake(operation.name)} {' '.join(arguments)} =", f"  {result}", ""]


def ocaml(document: Schema) -> str:
    """The module `Api`."""
    schemas = document["components"]["schemas"]
    roles = Roles.of(document, schemas)
    out = [HEAD]
    for name in ordered(schemas):
        schema = schemas[name]
        if name not in roles.sent | roles.received:
            continue
        out += comment(schema.get("description", ""), "")
        out.append(f"module {module(name)} = struct")
        if "enum" in schema:
            out += choice(name, schema["enum"], roles)
        elif is_object(schema):
            out += record(name, schema, schemas, roles)
        else:
            shape = Shape(schema)
            out += [f"  type t = {shape.type}", ""]
            out += [f"  let of_json = {shape.read}", f"  let to_json = {shape.write}"]
        out += ["end", ""]
    for operation in operations(document):
        out += operation_lines(operation)
    return "\n".join(out)
