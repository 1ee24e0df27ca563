"""How a call reaches the engine: its options and its report are JSON, its store comes along.

    options, storage_options ─▶ one text, settings or a store ─▶ engine ─▶ report

Not here: the options of each call, and the classes of their reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from plait import _stores
from plait._observe import watched
from plait.errors import InvalidArgument
from plait.report import Progress

OnProgress = Callable[[Progress], object]


def _call(
    function: Callable[..., str | tuple[str, list[bytes]]],
    options: dict[str, Any],
    storage_options: object,
    progress: OnProgress | None,
    *more: object,
) -> dict[str, Any]:
    bucket = _reach(options, storage_options)

    def text() -> str:
        try:
            return json.dumps(options)
        except TypeError as cause:
            raise InvalidArgument(f"an option has a type that cannot be used: {cause}") from cause

    with watched(function.__name__) as call:
        report = parsed(function(text, _teller(progress), bucket, *more))
        call.done(report)
    return report


def parsed(answer: str | tuple[str, list[bytes]]) -> dict[str, Any]:
    """A report; that of a plan comes with blocks of packed sources."""
    if isinstance(answer, str):
        report: dict[str, Any] = json.loads(answer)
        return report
    report = json.loads(answer[0])
    report["packed"]["blocks"] = answer[1]
    return report


def _teller(progress: OnProgress | None) -> Callable[[int, int, int, str], None] | None:
    """What the engine calls, where there is somebody to be informed."""
    if progress is None:
        return None

    def tell(consumed_bytes: int, total_bytes: int, rows_written: int, stage: str) -> None:
        progress(Progress(consumed_bytes, total_bytes, rows_written, stage))

    return tell


def _reach(options: dict[str, Any], storage_options: object) -> object | None:
    """Puts settings and names of a store into `options`; gives the store if the engine calls it."""
    bucket = None
    if _stores.is_store(storage_options):
        prefix, settings, bucket = _stores.reach(storage_options)
        for name in ("sources", "out", "files", "against", "file", "to"):
            options |= {name: _named(prefix, options[name])} if name in options else {}
        for layer in options.get("overlay", {}).get("layers", ()):
            layer["files"] = _named(prefix, layer["files"])
    else:
        settings = _settings(storage_options)
    options["storage_options"] = settings
    return bucket


def _named(prefix: str, paths: Any) -> Any:  # noqa: ANN401 - one path, many, or none
    if isinstance(paths, list):
        # Streams among sources have numbers, and are in no store.
        return [p if isinstance(p, int) else _stores.named(prefix, p) for p in paths]
    return paths if paths is None else _stores.named(prefix, paths)


def _settings(settings: object) -> dict[str, str]:
    if settings is None:
        return {}
    if isinstance(settings, Mapping):
        texts = {name: _setting(value) for name, value in settings.items()}
        if all(isinstance(name, str) for name in texts):
            known = {name: text for name, text in texts.items() if text is not None}
            if len(known) == len(texts):
                return known
    raise InvalidArgument.of(
        "`storage_options` is not a mapping from names to texts",
        hint='give {"aws_region": "eu-central-1"}, an obstore store or an fsspec file system',
    )


def _setting(value: object) -> str | None:
    # True and 5 are what others accept, too.
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else None
