"""Deletion vectors of Delta tables as another library encodes them: roaring bitmaps of pyroaring.

Source: the Delta transaction log protocol, "Deletion Vectors" and "Deletion Vector Format".
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from pathlib import Path
from urllib.parse import unquote

from pyroaring import BitMap64

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
MAGIC = 1_681_511_377
FEATURE = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}


def z85(data: bytes) -> str:
    data += b"\0" * (-len(data) % 4)
    text = ""
    for at in range(0, len(data), 4):
        value, group = int.from_bytes(data[at : at + 4], "big"), ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            group = Z85[digit] + group
        text += group
    return text


def bitmap(rows) -> bytes:
    return struct.pack("<I", MAGIC) + BitMap64(rows).serialize()


def stored(data: bytes) -> bytes:
    """The bitmap as a file has it, from the length on."""
    return struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def vector(uri, rows, kind="u", prefix="") -> dict:
    """Writes a vector where `kind` says; how the log names it."""
    data = bitmap(rows)
    said = {"sizeInBytes": len(data), "cardinality": len(set(rows))}
    if kind == "i":
        return {"storageType": "i", "pathOrInlineDv": z85(data), **said}
    name = uuid.uuid4()
    folder = Path(uri, prefix)
    folder.mkdir(exist_ok=True)
    path = folder / f"deletion_vector_{name}.bin"
    # Other vectors come first in the file.
    before = b"\x01" + stored(bitmap([1, 2, 3]))
    path.write_bytes(before + stored(data))
    where = prefix + z85(name.bytes) if kind == "u" else str(path)
    return {"storageType": kind, "pathOrInlineDv": where, "offset": len(before), **said}


def live(uri) -> dict[str, dict]:
    """The `add` of each live file, by name."""
    found = {}
    for path in sorted(Path(uri, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                found.pop(unquote(action["remove"]["path"]), None)
        for action in actions:
            if "add" in action:
                found[unquote(action["add"]["path"])] = action["add"]
    return found


def delete(uri, name, rows, kind="u", prefix="", edit=lambda said: said) -> None:
    """Commits the deletion of rows of a live file, by their numbers, as a DELETE does."""
    add = live(uri)[name]
    made = edit(vector(uri, rows, kind, prefix))
    removed = {k: v for k, v in add.items() if k in ("path", "partitionValues", "size")}
    if add.get("deletionVector"):
        removed["deletionVector"] = add["deletionVector"]
    actions = [
        {"commitInfo": {"operation": "DELETE"}},
        {"protocol": FEATURE},
        {"remove": {**removed, "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "dataChange": True, "deletionVector": made}},
    ]
    log = Path(uri, "_delta_log")
    version = 1 + max(int(path.stem) for path in log.glob("*.json"))
    with (log / f"{version:020}.json").open("x") as commit:
        commit.write("\n".join(map(json.dumps, actions)))
