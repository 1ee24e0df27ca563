"""Collects the licences of the Rust crates that the extension links, and refuses others.

    scripts/licenses.py FILE     writes the list of crates and the texts of their licences
    scripts/licenses.py --check  only checks that every crate has an accepted licence

The crates are those that `cargo metadata` lists for any platform, without those that only tests
or builds need.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Permissive licences. A crate under several needs one of these for each `OR`, all for each `AND`.
ACCEPTED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}
TEXTS = ("license", "licence", "copying", "notice", "copyright", "unlicense")


def is_accepted(expression: str) -> bool:
    """Whether an SPDX expression (`/` is the former `OR`) allows one of the accepted licences."""
    words = re.findall(r"[()]|[^\s()]+", re.sub(r"\s*/\s*", " OR ", expression))
    value, rest = _any(words)
    return value and not rest


def _any(words: list[str]) -> tuple[bool, list[str]]:
    value, words = _all(words)
    while words[:1] == ["OR"]:
        other, words = _all(words[1:])
        value = value or other
    return value, words


def _all(words: list[str]) -> tuple[bool, list[str]]:
    value, words = _one(words)
    while words[:1] == ["AND"]:
        other, words = _one(words[1:])
        value = value and other
    return value, words


def _one(words: list[str]) -> tuple[bool, list[str]]:
    if words[:1] == ["("]:
        value, words = _any(words[1:])
        return value and words[:1] == [")"], words[1:]
    name, words = " ".join(words[:1]), words[1:]
    if words[:1] == ["WITH"]:
        name, words = " ".join([name, *words[:2]]), words[2:]
    return name in ACCEPTED, words


def linked_crates() -> list[dict]:
    """Packages that the extension links, without those of the workspace, by name and version."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    metadata = json.loads(found.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    ours = set(metadata["workspace_members"])
    (start,) = [key for key in ours if packages[key]["name"] == "plait-py"]
    seen, todo = {start}, [start]
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    crates = [packages[key] for key in seen - ours]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def refused(crates: list[dict]) -> list[str]:
    """Crates whose licence is not accepted, in words."""
    return [
        f"{crate['name']} {crate['version']}: {crate['license'] or 'no licence'}"
        for crate in crates
        if not is_accepted(crate["license"] or "")
    ]


def notices(crates: list[dict]) -> str:
    """The list of crates, then every text once, with the crates that have it."""
    users: dict[str, list[str]] = {}
    lines = ["Rust crates that the extension of Plait links:", ""]
    for crate in crates:
        name = f"{crate['name']} {crate['version']}"
        lines.append(f"{name}: {crate['license']}, {crate['repository'] or 'no repository'}")
        folder = Path(crate["manifest_path"]).parent
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name.lower().startswith(TEXTS):
                users.setdefault(path.read_text("utf-8", "replace").strip(), []).append(name)
    for text, names in users.items():
        lines += ["", "=" * 80, ", ".join(dict.fromkeys(names)), "-" * 80, text]
    return "\n".join(lines) + "\n"


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    crates = linked_crates()
    if bad := refused(crates):
        raise SystemExit("licenses.py: not accepted: " + "; ".join(bad))
    if sys.argv[1] == "--check":
        print(f"{len(crates)} crates, all with accepted licences")
    else:
        Path(sys.argv[1]).write_text(notices(crates), encoding="utf-8")


if __name__ == "__main__":
    main()
