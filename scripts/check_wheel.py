"""Checks that wheels hold what a release promises besides code: licences and an SBOM.

scripts/check_wheel.py WHEEL...
"""

import json
import sys
import zipfile
from pathlib import PurePosixPath


def missing(wheel: str) -> list[str]:
    """What `wheel` lacks, in words."""
    with zipfile.ZipFile(wheel) as archive:
        names = [PurePosixPath(name) for name in archive.namelist()]
        licences = {name.name: name for name in names if name.parent.name == "licenses"}
        sboms = [name for name in names if name.parent.name == "sboms"]
        lacks = [
            f"no {name} among its licences"
            for name in ("LICENSE", "THIRD-PARTY-LICENSES.txt")
            if name not in licences
        ]
        components = {
            component["name"]
            for name in sboms
            for component in json.loads(archive.read(str(name))).get("components", [])
        }
    if not {"parquet", "object_store"} <= components:
        lacks.append("no SBOM that lists the crates it links")
    return lacks


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    lacks = [f"{wheel}: {lack}" for wheel in sys.argv[1:] for lack in missing(wheel)]
    if lacks:
        raise SystemExit("check_wheel.py: " + "; ".join(lacks))
    print(f"{len(sys.argv) - 1} wheels hold licences and an SBOM")


if __name__ == "__main__":
    main()
