#!/bin/sh
# Builds the wheel that travels: for every Linux with glibc 2.28 or newer, every CPython from 3.10 on. Checks
# that it holds the licences and the list of the crates it links, installs it in a new environment, and merges
# two files there.
#
#   scripts/wheel.sh [FOLDER]                       into dist by default
#   PROFILE=fast scripts/wheel.sh                   in the profile of the tests: built sooner, slower and larger
#   COMPATIBILITY=manylinux_2_17 scripts/wheel.sh
#
# Zig links against the symbols of that glibc, whatever the machine has that builds. It comes from PyPI, as maturin
# and auditwheel do, into an environment of their own; what is compiled has a folder of its own, too, since zig
# compiles C libraries anew.
set -eu

cd "$(dirname "$0")/.."
out=${1:-dist}
python=${PYTHON:-python3}
profile=${PROFILE:-release}
compatibility=${COMPATIBILITY:-manylinux_2_28}
target=${CARGO_TARGET_DIR:-$HOME/.cache/plait/target}/wheel
tools=$target/tools

mkdir -p "$out" "$target"
test -x "$tools/bin/python" || "$python" -m venv "$tools"
"$python" scripts/extras.py build wheel > "$tools/requirements.txt"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check -r "$tools/requirements.txt"
"$python" scripts/licenses.py THIRD-PARTY-LICENSES.txt

scripts=$PWD/scripts
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
# The first python on the path is asked for zig.
PATH="$tools/bin:$PATH" VIRTUAL_ENV="$tools" PYO3_PYTHON="$tools/bin/python" CARGO_TARGET_DIR="$target" \
  maturin build --quiet --locked --profile "$profile" --zig --compatibility "$compatibility" --out "$fresh"
wheel=$(echo "$fresh"/*.whl)

"$tools/bin/auditwheel" show "$wheel"
"$tools/bin/auditwheel" show --json "$wheel" > "$fresh/shown.json"
"$tools/bin/python" - "$compatibility" "$fresh/shown.json" <<'PROGRAM'
import json
import re
import sys

wanted, shown = sys.argv[1], json.load(open(sys.argv[2]))
asked, found = (re.match(r"manylinux_(\d+)_(\d+)", tag) for tag in (wanted, shown["overall_tag"]))
if found is None or tuple(map(int, found.groups())) > tuple(map(int, asked.groups())):
    raise SystemExit(f"wheel.sh: asks for more than {wanted}: {shown['overall_tag']}")
print(f"{shown['overall_tag']} is enough; {wanted} was asked for")
PROGRAM

"$tools/bin/python" scripts/check_wheel.py "$wheel"

# As users do: nothing is there but the wheel, and PyArrow to make files with.
"$python" -m venv "$fresh/environment"
"$fresh/environment/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel" pyarrow
(
  cd "$fresh"
  environment/bin/python "$scripts/try_wheel.py"
)
mv "$wheel" "$out/"
echo "$out/$(basename "$wheel")"
