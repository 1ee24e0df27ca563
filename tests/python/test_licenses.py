"""The crates that the extension links have accepted licences, and wheels carry their texts."""

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def load(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


licenses = load("licenses")


@pytest.fixture(scope="module")
def crates():
    try:
        return licenses.linked_crates()
    except FileNotFoundError:
        pytest.skip("cargo is not installed")
    except subprocess.CalledProcessError as error:
        # What cargo downloads is not there where only a wheel is tested.
        pytest.skip(error.stderr.decode()[-200:])


def test_every_linked_crate_has_an_accepted_licence(crates):
    names = {crate["name"] for crate in crates}
    assert {"parquet", "object_store", "pyo3", "zstd-sys"} <= names
    assert not names & {"criterion", "proptest", "plait-core"}, (
        "tests and the workspace are not linked"
    )
    assert licenses.refused(crates) == []


def test_another_licence_is_refused_by_name(crates):
    copyleft = {"name": "somewhere", "version": "1.2.3", "license": "GPL-3.0-only"}
    none = {"name": "nowhere", "version": "0.1.0", "license": None}
    assert licenses.refused([*crates, copyleft, none]) == [
        "somewhere 1.2.3: GPL-3.0-only",
        "nowhere 0.1.0: no licence",
    ]


@pytest.mark.parametrize(
    ("expression", "accepted"),
    [
        ("MIT", True),
        ("MIT/GPL-3.0", True),
        ("GPL-3.0 OR Apache-2.0 WITH LLVM-exception", True),
        ("Apache-2.0 WITH Other-exception", False),
        ("MIT AND GPL-3.0", False),
        ("ISC AND (GPL-3.0 OR MIT)", True),
        ("(MIT OR GPL-3.0) AND GPL-2.0", False),
        ("", False),
        ("MIT MIT", False),
        ("(MIT", False),
    ],
)
def test_expressions(expression, accepted):
    assert licenses.is_accepted(expression) is accepted


def test_notices_name_every_crate_and_hold_texts(crates):
    text = licenses.notices(crates)
    for crate in crates:
        assert f"{crate['name']} {crate['version']}: {crate['license']}" in text
    assert "Permission is hereby granted, free of charge" in text


def test_a_wheel_without_licences_or_sbom_is_refused(tmp_path):
    def check(entries):
        wheel = tmp_path / "plait.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, text in entries.items():
                archive.writestr(f"plait-1.dist-info/{name}", text)
        command = [sys.executable, SCRIPTS / "check_wheel.py", wheel]
        return subprocess.run(command, capture_output=True, text=True)

    crates = [{"name": "parquet"}, {"name": "object_store"}]
    whole = {
        "licenses/LICENSE": "",
        "licenses/THIRD-PARTY-LICENSES.txt": "",
        "sboms/plait.cyclonedx.json": json.dumps({"components": crates}),
    }
    assert check(whole).returncode == 0
    for lacking in whole:
        done = check({name: text for name, text in whole.items() if name != lacking})
        assert done.returncode == 1
        what = "SBOM" if "sbom" in lacking else Path(lacking).name
        assert what in done.stderr
