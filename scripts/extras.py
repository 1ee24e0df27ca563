"""Prints what the named extras of pyproject.toml ask for, one requirement a line.

Installing the extras alone, without building the package, lets `make setup` run once and
`make build` run often. The extra `build` stands for the build requirements.
"""

import re
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pip brings a copy
    from pip._vendor import tomli as tomllib


def main() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    extras = {
        "build": project["build-system"]["requires"],
        **project["project"]["optional-dependencies"],
    }
    wanted = {requirement for name in sys.argv[1:] for requirement in extras[name]}
    for requirement in sorted(wanted, key=lambda r: re.split(r"\W", r)[0]):
        print(requirement)


main()
