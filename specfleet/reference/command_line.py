"""The page of the command line, made from the commands themselves."""

import json
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer.main

from experiments.terminal.exits import STATUSES
from specfleet.cli.entry import app
from specfleet.reference import texts
from specfleet.reference.markdown import code, paragraph, table_of


def command_page() -> list[str]:
    """Return the page in parts."""
    group: Any = typer.main.get_command(app)
    functions = {one.name or one.callback.__name__: one.callback for one in app.registered_commands if one.callback}
    index = [(f"[{name}](#{name})", paragraph(command.help or "")) for name, command in group.commands.items()]
    statuses = [(str(int(status)), meaning) for status, meaning in STATUSES.items()]
    parts = ["# Command line", group.help, paragraph(texts.COMMANDS), table_of(("command", "what it does"), index)]
    parts += ["## Exit statuses", "An error is one line on standard error.", table_of(("status", "meaning"), statuses)]
    for name, command in group.commands.items():
        hints = get_type_hints(functions[name])
        rows = [_parameter(param, hints[param.name]) for param in command.params if param.name in hints]
        table = table_of(("argument or option", "value", "default", "what it is"), rows)
        parts += [f"## {name}", paragraph(command.help or ""), table if rows else "It has no arguments or options."]
    return parts


def _parameter(param: Any, hint: Any) -> tuple[str, str, str, str]:
    is_argument = param.param_type_name == "argument"
    name = param.metavar or param.name.upper() if is_argument else ", ".join([*param.opts, *param.secondary_opts])
    value = "" if getattr(param, "is_flag", False) else code(param.metavar or "") or _value(hint)
    many = ", may be repeated" if getattr(param, "multiple", False) else ""
    return code(name), "" if is_argument else f"{value}{many}", _default(param), paragraph(param.help or "")


def _value(hint: Any) -> str:
    """Name what an option takes, by its Python type."""
    if get_origin(hint) is Literal:
        return ", ".join(map(code, get_args(hint)))
    names = {"int": "integer", "float": "number", "Path": "path"}
    kinds = [arm for arm in (get_args(hint) or (hint,)) if arm is not type(None)]
    return " or ".join(names.get(getattr(kind, "__name__", ""), "text") for kind in kinds)


def _default(param: Any) -> str:
    """Write a default; one that depends on the host is told in words."""
    if param.required:
        return "required"
    if isinstance(param.show_default, str):
        return str(param.show_default)
    return "" if param.default is None or param.default in (False, "") else code(json.dumps(param.default, default=str))
