"""Importing is light and harmless: no dependency, no thread, nothing that a fork would break."""

import re

import pytest

import plait

# A process of its own, because this one has imported everything already.
THIRD_PARTY_AFTER_IMPORT = """
import sys
before = set(sys.modules)
import plait, plait.cli
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names) - {"plait"}))
"""

THREADS = """
import os, plait
def threads(): return len(os.listdir("/proc/self/task"))
print(threads())
for _ in range(3):
    try:
        plait.inspect("absent.parquet")
    except plait.SourceNotFound:
        pass
print(threads())
"""

FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import plait
def merge(name):
    return plait.merge(["a.parquet", "b.parquet"], name, sort_by="k").rows_out
assert merge("parent-before") == 6
child = os.fork()
if child == 0:
    os._exit(40 + merge("child"))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 46
assert merge("parent-after") == 6
"""

SPAWNED = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
import plait
def work(i):
    return plait.merge(["a.parquet", "b.parquet"], f"out-{i}", sort_by="k").rows_out
if __name__ == "__main__":
    work(99)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(work, range(6)) == [6] * 6
"""


@pytest.fixture
def two_files(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"k": [1, 3, 5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [2, 4, 6]}), tmp_path / "b.parquet")


def test_import_needs_nothing_but_python(python):
    assert python("-c", THIRD_PARTY_AFTER_IMPORT).stdout.strip() == "[]"


def test_importing_tables_imports_no_library_of_tables(python):
    program = THIRD_PARTY_AFTER_IMPORT.replace("plait.cli", "plait.table")
    assert python("-c", program).stdout.strip() == "[]"


def test_no_thread_is_there_before_or_after_a_call(python, root):
    ran = python("-c", THREADS)
    assert ran.stdout.split() == ["1", "1"], ran.stderr


def test_calls_work_before_and_after_a_fork(python, two_files):
    ran = python("-c", FORK)
    assert ran.returncode == 0, ran.stderr


def test_forked_workers_merge(python, two_files, tmp_path):
    script = tmp_path / "work.py"
    script.write_text(SPAWNED)
    ran = python(str(script))
    assert ran.returncode == 0, ran.stderr


def test_every_kind_of_the_engine_has_its_exception(root):
    source = (root / "rust/base/src/error.rs").read_text()
    kinds = set(re.findall(r'Self::\w+ => "(\w+)"', source))
    classes = set(plait.errors.__all__) - {"PlaitError"}
    assert kinds == classes
    for name in classes:
        raised = getattr(plait, name)
        assert issubclass(raised, plait.PlaitError)
        assert raised is getattr(plait.errors, name)


@pytest.mark.parametrize(
    ("raised", "builtin"),
    [
        (plait.InvalidArgument, ValueError),
        (plait.UnsortedSource, ValueError),
        (plait.SchemaConflict, TypeError),
        (plait.UnknownColumn, KeyError),
        (plait.UnsupportedKey, TypeError),
        (plait.CorruptSource, ValueError),
        (plait.EncryptedSource, plait.CorruptSource),
        (plait.Unsupported, NotImplementedError),
        (plait.SourceNotFound, FileNotFoundError),
        (plait.SourceChanged, OSError),
        (plait.SourceFailed, RuntimeError),
        (plait.RowMismatch, ValueError),
        (plait.IndexTypeError, TypeError),
        (plait.FieldNotInLayer, KeyError),
        (plait.SplitInsideNonStruct, ValueError),
        (plait.PathThroughNonStruct, ValueError),
        (plait.DuplicateField, ValueError),
        (plait.SchemaDrift, TypeError),
        (plait.InvalidPath, ValueError),
        (plait.ProjectionError, TypeError),
        (plait.LossyCast, ValueError),
        (plait.SchemaChanged, TypeError),
        (plait.StorageError, OSError),
        (plait.OutputExists, FileExistsError),
        (plait.MemoryLimitExceeded, MemoryError),
        (plait.VerificationFailed, ValueError),
        (plait.InternalError, RuntimeError),
    ],
)
def test_errors_are_their_nearest_builtin_and_print_plainly(raised, builtin):
    error = raised("a `thing` happened\nhint: do better")
    assert isinstance(error, builtin)
    assert str(error) == "a `thing` happened\nhint: do better"


def test_errors_survive_pickling():
    import pickle

    error = plait.SourceNotFound("not there")
    error.path, error.row = "x.parquet", 3
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (plait.SourceNotFound, "not there")
    assert (copy.path, copy.row, copy.column) == ("x.parquet", 3, None)


def test_versions_agree(root):
    manifest = (root / "Cargo.toml").read_text()
    assert f'version = "{plait.__version__}"' in manifest
    assert f"## {plait.__version__}" in (root / "CHANGELOG.md").read_text()
