"""Hooks of mkdocs.yml: the reference of the command line, and links that leave `docs`.

The site is built without the extension of Plait, so the parser of the command line is imported with
a stand-in for `plait._native`.
"""

import argparse
import html
import re
import sys
from pathlib import Path
from unittest import mock

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = "<!-- commands -->"
CRATES = "<!-- crates -->"
LINK = re.compile(r"\]\((\.\./[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown, page, config, files):
    """Fills in what is generated, and lets links to other files lead to the repository."""
    markdown = markdown.replace(COMMANDS, commands() if COMMANDS in markdown else "")
    markdown = markdown.replace(CRATES, crates() if CRATES in markdown else "")
    folder = Path(page.file.abs_src_path).parent

    def absolute(found):
        target = (folder / found[1]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return found[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: there is no {found[1]}")
        path = target.relative_to(ROOT).as_posix()
        return f"]({config.repo_url.rstrip('/')}/blob/main/{path}{found[2] or ''})"

    return LINK.sub(absolute, markdown)


def commands():
    """A section for each command, with its usage and a table of its arguments."""
    sys.path.insert(0, str(ROOT / "python"))
    with mock.patch.dict(sys.modules, {"plait._native": mock.MagicMock()}):
        from plait.cli._options import parser

        root = parser()
    subparsers = next(a for a in root._actions if isinstance(a, argparse._SubParsersAction))
    sections = []
    for name, command in subparsers.choices.items():
        groups = [
            (None, [*command._positionals._group_actions, *command._optionals._group_actions])
        ]
        known = ("positional arguments", "options", "optional arguments")
        for group in command._action_groups:
            if group.title not in known:
                groups.append((group.title, group._group_actions))
        parts = [f"## plait {name}", command.description]
        for title, actions in groups:
            parts += [f"Options of {title}:"] if title else []
            parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows(actions)]))
        sections += parts
    codes = root.epilog.partition("\n")[2]
    sections += ["## Exit codes", "```text\n" + codes.rstrip() + "\n```"]
    return "\n\n".join(sections)


def rows(actions):
    """A row of the table for each argument."""
    for action in actions:
        if isinstance(action, argparse._HelpAction):
            continue
        flags = ", ".join(action.option_strings)
        value = ""
        if action.nargs != 0:
            value = argparse.HelpFormatter("plait")._format_args(action, named(action))
        text = html.escape(action.help or "", quote=False)
        both = " ".join(part for part in (flags, value) if part)
        yield f"| `{both}` | {text} |".replace("\\|", "|")


def named(action):
    """What stands for the value of an argument."""
    if action.metavar is not None:
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(str(choice) for choice in action.choices) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def crates():
    """Links to what `cargo doc` made; plain HTML, because the site is checked before that."""
    manifests = (path.read_text() for path in sorted(ROOT.glob("rust/*/Cargo.toml")))
    names = [re.search(r'^name = "([^"]+)"', text, re.MULTILINE)[1] for text in manifests]
    return "\n".join(
        f'- <a href="../rust/{name.replace("-", "_")}/index.html"><code>{name}</code></a>'
        for name in names
        if name != "plait-py"  # the extension has no interface in Rust
    )
