"""The tests and the extension share the crates they are built from: one build serves both."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def features(*arguments):
    """The features of each crate that a build of this package compiles."""
    command = ["cargo", "tree", "--offline", "--prefix=none", "--format={p} {f}", *arguments]
    try:
        tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("cargo is not installed")
    except subprocess.CalledProcessError as error:
        # What cargo downloads is not there where only a wheel is tested.
        pytest.skip(error.stderr[-200:])
    found = {}
    for line in tree.stdout.replace(" (*)", "").splitlines():
        name, _, rest = line.partition(" v")
        version, _, listed = rest.partition(" ")
        if name and not name.startswith("plait"):
            found.setdefault((name, version), set()).add(listed)
    return found


def test_the_tests_and_the_extension_share_their_dependencies():
    extension = features("--package=plait-py", "--edges=normal,build")
    tests = features("--workspace", "--exclude=plait-py", "--edges=normal,build,dev")
    shared = extension.keys() & tests.keys()
    assert len(shared) > 100
    assert {crate: tests[crate] for crate in shared} == {c: extension[c] for c in shared}
