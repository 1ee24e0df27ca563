"""The grammar of the command line: every option of the functions, by the same name."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import plait
from plait import sizes
from plait._checks import CHOICES
from plait._overlay import CHOICES as OVERLAY_CHOICES
from plait._scan import CHOICES as SCAN_CHOICES
from plait.cli import _join
from plait.table._calls import FORMATS
from plait.table.options import CHOICES as COMPACT_CHOICES
from plait.table.options import CompactOptions

_EXIT_CODES = """\
exit codes:
  0    done
  1    verification failed
  2    wrong usage
  3    bad input: unsorted, conflicting, damaged, or of an unsupported kind
  4    storage: not found, exists already, not readable or writable, full
  5    the memory limit is too small
  70   a bug in plait
  130  interrupted; nothing was published
  141  the reader of the output went away
"""

_MERGE_HELP: dict[str, str] = {
    "sort_by": 'order, such as "name, -ts nulls first"; "" concatenates; default: as files declare',
    "outputs": "at most so many files",
    "target_file_size": "files of about this size, such as 256MB or 1GiB",
    "target_rows": "files of about so many rows",
    "cut_on": "so many leading key columns stay together in one file; default: all",
    "row_group_size": "size of a row group",
    "row_group_rows": "rows of a row group, at most",
    "page_size": "size of a page",
    "page_rows": "rows of a page, at most",
    "align_row_groups": "start a row group when one of so many leading key columns changes",
    "compression": 'codec, such as "zstd(3)", snappy or none; default: as the sources',
    "dictionary": "encode with dictionaries, or not; default: as the sources",
    "data_page_version": "version of the data pages; default: as the sources",
    "bloom_filters": "columns that get bloom filters, comma-separated, such as host,trace=0.001",
    "value_sets": "columns whose values, or what they begin with, are listed in the footer",
    "statistics": "smallest and greatest values: page, chunk, none, or such as host=none,v=chunk",
    "widen": "columns whose types differ: widen where nothing is lost, or refuse",
    "missing": "columns absent from some sources: fill with nulls, or refuse",
    "missing_keys": "sources without a sort column: refuse them, or take their keys for null",
    "metadata_conflicts": "footer entries not the same in all sources: drop, keep first, or refuse",
    "on_duplicate": "several rows with one key: keep all, the first, the last, or refuse them",
    "version_by": "of rows with one key, keep the one with the greatest value of this column",
    "delete_where": "boolean column: a row that stays deletes its key where it is true",
    "keep_tombstones": "keep rows that delete, for a merge with older files",
    "drop_where": 'rows to drop, such as "timestamp < 1700000000"; of a key column',
    "verify_order": "check copied stretches by the bounds of their pages, or in full",
    "verify_pages": "check copied pages by their checksums, or by unpacking them too",
    "assume_sorted": "trust the order of the sources",
    "trust_footers": "believe keys in footers of Plait when planning, or read them",
    "verify": "hash all rows in and out, fail on a difference",
    "sha256": "report the SHA-256 digest of every output",
    "copy_tiers": "cheap ways of copying that may be used, comma-separated, or none",
    "threads": "number of threads; default: all processors",
    "memory_limit": "memory for buffers",
    "if_exists": "when the output exists: refuse, or add to the folder",
    "empty_output": "write one file without rows when there are no rows, or not",
    "storage_options": "a setting of object stores, such as aws_region=eu-central-1; repeatable",
}

_OVERLAY_HELP: dict[str, str] = {
    "index": "index column, a name or KEY=VALUE of its metadata; default: marked, or _index",
    "row_number": "column of row numbers that is compared, too; a name or KEY=VALUE",
    "struct_validity": "when a combined struct is there",
    "check_unused": "compare layers that supply nothing, too, or not",
    "check": "compare index columns before the first byte is written, or after the last",
    "copy_tiers": _MERGE_HELP["copy_tiers"],
    "memory_limit": _MERGE_HELP["memory_limit"],
    "storage_options": "a setting of object stores, such as aws_region=eu-central-1; repeatable",
}

_SWITCHES_BOTH_WAYS = ("dictionary", "empty_output", "check_unused", "trust_footers")
_SCAN_HELP: dict[str, str] = {
    "columns": "columns, comma-separated: names, a.b, a[1], *; default: all",
    "strict": "refuse columns that the schema of --schema-of does not name",
    "policy": "what becomes of kinds of drift, such as lossy=cast,zone=cast",
    "case": "names that differ in case alone: two columns, or one",
    "missing": "a named column that no source has: an error (default), or null",
    "static": "columns of one text each, such as region=eu,run=7",
    "implicit": "columns that say where a row is from, such as _path,_row_number",
    "partitions": "folders as columns: key=value folders, or dir0, dir1 below the root",
    "partition_types": "types of partition columns, such as year=int32",
    "root": "the folder above dir0",
    "mode": "resolve the schema of all sources first, or follow one after the other",
    "smooth": "follow: keep the schema while it carries the data (default), or not",
    "on_change": "follow: report changes of the schema (default), or refuse them",
    "null_type": "follow: type of columns that no source has had yet",
    "batch_rows": "rows of a batch, at most",
    "batch_bytes": "size of a batch, at most",
    "limit": "rows in all, at most",
    "threads": "number of threads; default: all processors",
    "memory_limit": _MERGE_HELP["memory_limit"],
    "storage_options": _MERGE_HELP["storage_options"],
}

# Those of one format or of one machine alone; the others are in `CompactOptions`.
_TABLE_HELP: dict[str, str] = {
    "format": "what DIR is; default: iceberg with --catalog, delta where there is a log, or folder",
    "catalog": "iceberg: name of a catalog that PyIceberg is configured for; DIR is db.table then",
    "where": "partitions, such as day=2024-05-01; repeatable",
    "guard": "delta: log removed files as changed data, or not",
}

_SIZES = ("target_file_size", "row_group_size", "page_size", "memory_limit", "mature_size")
_CHOICES = {**CHOICES, **OVERLAY_CHOICES, **COMPACT_CHOICES}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the arguments after the program's name; exits when they make no sense."""
    joined: list[str] = []
    for argument in arguments:
        # `--sort-by -ts` must not be read as two options.
        if joined and joined[-1] == "--sort-by":
            joined[-1] += "=" + argument
        else:
            joined.append(argument)
    return parser().parse_args(joined)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    root = _parser_of(argparse.ArgumentParser, prog="plait", description=_first_line(plait.__doc__))
    root.add_argument("--version", action="version", version=f"plait {plait.__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    merge = _parser_of(commands.add_parser, "merge", help="merge sorted files")
    merge.description = _first_line(plait.merge.__doc__)
    merge.add_argument("sources", nargs="+", metavar="SOURCE", help="file, folder, glob or URL")
    merge.add_argument(
        "-o", "--out", required=True, metavar="OUT", help="folder, or one path ending in .parquet"
    )
    defaults = {n: p.default for n, p in inspect.signature(plait.merge).parameters.items()}
    for name, text in _MERGE_HELP.items():
        _add_option(merge, name, defaults[name], text)
    _add_printing(merge)

    _add_plan(commands)
    _add_compact(commands)

    verify = _parser_of(commands.add_parser, "verify", help="check order, ranges and rows of files")
    verify.description = _first_line(plait.verify.__doc__)
    verify.add_argument("files", nargs="+", metavar="FILE", help="file, folder, glob or URL")
    verify.add_argument(
        "--against", nargs="+", metavar="FILE", help="files that must hold the same rows"
    )
    _add_option(verify, "sort_by", None, _MERGE_HELP["sort_by"])
    _add_option(verify, "memory_limit", "512MB", _MERGE_HELP["memory_limit"])
    _add_option(verify, "storage_options", None, _MERGE_HELP["storage_options"])
    _add_printing(verify)

    overlay = _parser_of(commands.add_parser, "overlay", help="join layers by position")
    overlay.description = _first_line(plait.overlay_files.__doc__)
    overlay.add_argument(
        "--layer",
        dest="layers",
        action="append",
        nargs="+",
        required=True,
        metavar=("FILE", "PATH"),
        help="a layer, and the paths it owns, such as a.b; default: all its columns; weakest first",
    )
    overlay.add_argument("-o", "--out", required=True, metavar="OUT", help="path of the output")
    defaults = {n: p.default for n, p in inspect.signature(plait.overlay_files).parameters.items()}
    for name, text in _OVERLAY_HELP.items():
        _add_option(overlay, name, defaults[name], text)
    _add_printing(overlay)

    _add_scan(commands)

    join = _parser_of(commands.add_parser, "join", help="join two tables that change, by key")
    join.description = "Applies changes of two tables, and writes how their join changes."
    _join.add_arguments(join)

    describe = _parser_of(commands.add_parser, "inspect", help="describe one file")
    describe.description = _first_line(plait.inspect.__doc__)
    describe.add_argument("file", metavar="FILE", help="file or URL")
    describe.add_argument("--pages", action="store_true", help="look for the pages, too")
    _add_option(describe, "sort_by", None, "order of the keys to show; default: as declared")
    _add_option(describe, "check_order", default=False, text="read all keys: are they in order?")
    _add_option(describe, "storage_options", None, _MERGE_HELP["storage_options"])
    describe.add_argument("--json", action="store_true", help="print the report as JSON")
    return root


def _add_plan(commands: Any) -> None:  # noqa: ANN401 - argparse does not name the type
    plan = _parser_of(commands.add_parser, "plan", help="what a merge would do")
    plan.description = _first_line(plait.plan.__doc__)
    plan.add_argument("sources", nargs="+", metavar="SOURCE", help="file, folder, glob or URL")
    defaults = {n: p.default for n, p in inspect.signature(plait.plan).parameters.items()}
    for name, text in _MERGE_HELP.items():
        _add_option(plan, name, defaults[name], text)
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")

    execute = _parser_of(commands.add_parser, "execute", help="execute a plan, or some tasks of it")
    execute.description = _first_line(plait.Plan.execute.__doc__)
    execute.add_argument("plan", metavar="PLAN", help="file with the JSON of `plait plan --json`")
    execute.add_argument(
        "-o", "--out", required=True, metavar="OUT", help="folder, or one path ending in .parquet"
    )
    execute.add_argument(
        "--tasks", nargs="+", type=_count, metavar="N", help="indices of tasks; default: all"
    )
    _add_option(execute, "threads", None, _MERGE_HELP["threads"])
    _add_option(execute, "verify", None, _MERGE_HELP["verify"])
    _add_option(execute, "storage_options", None, _MERGE_HELP["storage_options"])
    _add_printing(execute)


def _add_compact(commands: Any) -> None:  # noqa: ANN401 - argparse does not name the type
    compact = _parser_of(
        commands.add_parser, "compact", help="merge files of a folder or table by a policy"
    )
    compact.description = _first_line(plait.compact.__doc__)
    compact.add_argument(
        "folder", metavar="DIR", help="a folder, as path or URL; or path, URL or name of a table"
    )
    defaults = {n: p.default for n, p in inspect.signature(plait.compact).parameters.items()}
    documented = _documented(CompactOptions)
    names = [f.name for f in fields(CompactOptions) if f.name not in ("where", "yes")]
    for name in (*names, "threads"):
        _add_option(
            compact, name, defaults[name], documented.get(name) or _MERGE_HELP.get(name, "")
        )
    # What is not given is as the function of the format has it.
    for action in compact._actions:  # noqa: SLF001 - argparse has no other way at them
        if action.dest in (*names, "threads"):
            action.default = argparse.SUPPRESS
    runs = compact.add_mutually_exclusive_group()
    runs.add_argument(
        "--dry-run",
        dest="yes",
        action="store_false",
        help="only print what would be merged first",
        default=argparse.SUPPRESS,
    )
    runs.add_argument(
        "--yes",
        action="store_true",
        help="compact, which is the default",
        default=argparse.SUPPRESS,
    )
    tables = compact.add_argument_group("tables")
    tables.add_argument("--format", choices=FORMATS, help=_TABLE_HELP["format"])
    tables.add_argument("--catalog", metavar="NAME", help=_TABLE_HELP["catalog"])
    tables.add_argument(
        "--where",
        action=_Values,
        type=_setting,
        metavar="COLUMN=VALUE",
        help=_TABLE_HELP["where"],
        default=argparse.SUPPRESS,
    )
    tables.add_argument(
        "--guard",
        action=argparse.BooleanOptionalAction,
        help=_TABLE_HELP["guard"],
        default=argparse.SUPPRESS,
    )
    compact.add_argument("--json", action="store_true", help="print the report as JSON")

    expire = _parser_of(commands.add_parser, "expire", help="remove files that were replaced")
    expire.description = _first_line(plait.expire.__doc__)
    expire.add_argument("folder", metavar="DIR", help="a folder or URL that was compacted")
    _add_option(expire, "retention", "7d", "how long ago files were replaced, such as 7d or 12h")
    _add_option(expire, "storage_options", None, _MERGE_HELP["storage_options"])
    _add_option(expire, "yes", default=False, text="do it; otherwise print what would be removed")
    expire.add_argument("--json", action="store_true", help="print the report as JSON")


def _add_scan(commands: Any) -> None:  # noqa: ANN401 - argparse does not name the type
    scan = _parser_of(commands.add_parser, "scan", help="one schema over files that drift")
    scan.description = _first_line(plait.scan.__doc__)
    scan.add_argument("sources", nargs="+", metavar="SOURCE", help="file, folder, glob or URL")
    defaults = {n: p.default for n, p in inspect.signature(plait.scan).parameters.items()}
    for name, text in _SCAN_HELP.items():
        if name in ("memory_limit", "storage_options"):
            _add_option(scan, name, defaults[name], text)
            continue
        flag, default = "--" + name.replace("_", "-"), defaults[name]
        settings: dict[str, Any] = {"default": default, "help": text}
        if name == "smooth":
            settings["action"] = argparse.BooleanOptionalAction
        elif isinstance(default, bool):
            settings["action"] = "store_true"
        elif name in SCAN_CHOICES:
            settings["choices"] = SCAN_CHOICES[name]
        elif name in ("columns", "implicit"):
            settings.update(type=_listed, metavar="NAMES")
        elif name in ("policy", "static", "partition_types"):
            settings.update(type=_pairs, metavar="NAME=VALUE")
        elif name == "batch_bytes":
            settings.update(type=_size, metavar="SIZE")
        elif name in ("root", "null_type"):
            settings["metavar"] = "TEXT"
        else:
            settings.update(type=_count, metavar="N")
        scan.add_argument(flag, **settings)
    scan.add_argument(
        "--schema-of", metavar="FILE", help="a Parquet file whose schema wins over what sources say"
    )
    what = scan.add_mutually_exclusive_group()
    what.add_argument(
        "--schema", action="store_true", help="print the schema and its fingerprint, read no row"
    )
    what.add_argument(
        "--explain", action="store_true", help="print what happens to each column of each file"
    )
    scan.add_argument("--json", action="store_true", help="print as JSON")


def _parser_of(make: Any, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:  # noqa: ANN401
    made: argparse.ArgumentParser = make(
        *args,
        **kwargs,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return made


def _add_printing(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.add_argument("--quiet", action="store_true", help="no progress bar, no report")


def _add_option(command: argparse.ArgumentParser, name: str, default: Any, text: str) -> None:  # noqa: ANN401
    flag = "--" + name.replace("_", "-")
    if default not in (None, ()) and not isinstance(default, bool) and name != "copy_tiers":
        text = f"{text} (default: {default})"
    settings: dict[str, Any] = {"default": default, "help": text}
    if name in _SWITCHES_BOTH_WAYS:
        settings["action"] = argparse.BooleanOptionalAction
    elif isinstance(default, bool):
        settings["action"] = "store_true"
    elif name in _CHOICES:
        settings["choices"] = _CHOICES[name]
        settings["type"] = type(_CHOICES[name][0])
    elif name in _SIZES:
        settings.update(type=_size_or_none if name == "target_file_size" else _size, metavar="SIZE")
    elif name == "storage_options":
        settings.update(action=_Setting, type=_setting, metavar="NAME=VALUE")
    elif name == "copy_tiers":
        settings.update(type=_tiers, metavar="TIERS", help=f"{text} (default: {','.join(default)})")
    else:
        read, metavar = _READ.get(name, (_count, "N"))
        settings.update(type=read, metavar=metavar)
    command.add_argument(flag, **settings)


def _size(text: str) -> int:
    try:
        return sizes.parse_size(text)
    except plait.InvalidArgument:
        raise argparse.ArgumentTypeError(f"`{text}` is not a size such as 256MB or 1GiB") from None


def _size_or_none(text: str) -> int | None:
    return None if text == "none" else _size(text)


def _mark(text: str) -> str | dict[str, str]:
    key, equals, value = text.partition("=")
    return {key: value} if equals else text


def _count(text: str) -> int:
    digits = text.replace("_", "")
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number, 0 or more")
    return int(digits)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _pairs(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in _listed(text)]
    if any(not equals for _, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=VALUE,NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _filters(text: str) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for part in _listed(text):
        name, equals, rate = part.partition("=")
        try:
            filters[name.strip()] = {"fpp": float(rate)} if equals else True
        except ValueError:
            raise argparse.ArgumentTypeError(f"`{rate}` is not a rate such as 0.01") from None
    return filters


def _levels(text: str) -> str | dict[str, str]:
    return _pairs(text) if "=" in text else text


class _Values(argparse.Action):
    """Collects the values of each name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - the signature is argparse's
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - the signature is argparse's
        option_string: str | None = None,  # noqa: ARG002 - the signature is argparse's
    ) -> None:
        """Adds one value."""
        name, value = values
        known = getattr(namespace, self.dest, None) or {}
        setattr(namespace, self.dest, {**known, name: [*known.get(name, ()), value]})


class _Setting(argparse.Action):
    """Collects settings into one mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - the signature is argparse's
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - the signature is argparse's
        option_string: str | None = None,  # noqa: ARG002 - the signature is argparse's
    ) -> None:
        """Adds one setting."""
        name, value = values
        settings = {**(getattr(namespace, self.dest, None) or {}), name: value}
        setattr(namespace, self.dest, settings)


def _setting(text: str) -> tuple[str, str]:
    name, is_setting, value = text.partition("=")
    if not (name and is_setting):
        raise argparse.ArgumentTypeError(f"`{text}` is not of the form NAME=VALUE")
    return name, value


def _tiers(text: str) -> tuple[str, ...]:
    if text.strip().lower() in ("", "none"):
        return ()
    return tuple(part.strip() for part in text.split(","))


# How options are read that are neither switches, choices nor sizes; the others are counts.
_READ: dict[str, tuple[Callable[[str], Any], str]] = {
    "sort_by": (str, "TEXT"),
    "compression": (str, "TEXT"),
    "version_by": (str, "TEXT"),
    "delete_where": (str, "TEXT"),
    "drop_where": (str, "TEXT"),
    "mature_age": (str, "TEXT"),
    "retention": (str, "TEXT"),
    "index": (_mark, "NAME"),
    "row_number": (_mark, "NAME"),
    "bloom_filters": (_filters, "NAMES"),
    "value_sets": (_listed, "NAMES"),
    "statistics": (_levels, "LEVELS"),
}


def _documented(options: type) -> dict[str, str]:
    """The help of options: the first sentence of each, unless `merge` explains it."""
    found = {}
    attributes = (options.__doc__ or "").partition("    Attributes:\n")[2]
    for name, text in re.findall(r"^ {8}(\w+): (.+(?:\n {12}.+)*)", attributes, re.MULTILINE):
        sentence = re.split(r"\.(?:\s|$)", re.sub(r"\s+", " ", text))[0]
        if sentence != "See `merge`":
            found[name] = (sentence[0].lower() + sentence[1:]).replace("`", "")
    return found


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]
