"""A page that does not fit the memory limit is refused by name, through every door."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import Layer

# Pages of one gibibyte, of the public test files of Parquet.
GIB_PAGES = Path(__file__).parents[1] / "cases" / "pages" / "large_string_map.brotli.parquet"

DOORS = """
import json, resource, sys
import plait
from plait import Layer
from peak_memory import peak_rss_bytes

path, out, limited = sys.argv[1], sys.argv[2], int(sys.argv[3])
doors = {
    "merge": lambda: plait.merge(path, out + "-merge", sort_by=""),
    "scan": lambda: sum(batch.num_rows for batch in plait.scan(path)),
    "projected scan": lambda: sum(batch.num_rows for batch in plait.scan(path, ["arr"])),
    "following scan": lambda: sum(b.num_rows for b in plait.scan(path, mode="follow")),
    "streams": lambda: sum(b.num_rows for b in plait.merge_streams([path], sort_by="")),
    "verify": lambda: plait.verify(path, against=path, sort_by=""),
    "inspect": lambda: plait.inspect(path),
}
resource.setrlimit(resource.RLIMIT_AS, (limited, limited))
found = {}
for name, door in doors.items():
    before = peak_rss_bytes()
    try:
        door()
        found[name] = ["read", "", peak_rss_bytes() - before]
    except Exception as error:
        found[name] = [type(error).__name__, str(error), peak_rss_bytes() - before]
print(json.dumps(found))
"""


def test_pages_of_a_gibibyte_are_refused_where_memory_is_limited(
    tmp_path: Path, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = python("-c", DOORS, str(GIB_PAGES), str(tmp_path / "out"), str(3 << 30), timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Keys and statistics say all that `inspect` reports: it reads no such page.
    assert found.pop("inspect")[0] == "read"
    for door, (kind, text, grown) in found.items():
        assert kind == "MemoryLimitExceeded", (door, kind, text)
        assert "large_string_map.brotli.parquet" in text, door
        assert "arr" in text, door
        assert "1073741" in text, (door, text)
        assert grown < 200_000_000, (door, grown)


def zeros(path: Path, rows: int, **columns: object) -> Path:
    """A small file with a page that becomes 40 MB."""
    value = pa.array([bytes(40_000_000)] + [b""] * (rows - 1))
    struct = pa.StructArray.from_arrays([value, pa.array(range(rows))], ["big", "n"])
    table = pa.table({"k": range(rows), "s": struct} | columns)
    pq.write_table(table, path, use_dictionary=False, compression="zstd")
    return path


@pytest.mark.parametrize(
    "door",
    [
        "value tier",
        "scan",
        "following scan",
        "verify",
        "overlay files",
    ],
)
def test_a_page_above_memory_limit_is_refused_by_file_column_and_size(
    door: str, tmp_path: Path
) -> None:
    path = zeros(tmp_path / "zeros.parquet", 10)
    patch = tmp_path / "patch.parquet"
    pq.write_table(pa.table({"k": range(10), "s": [{"n": i} for i in range(10)]}), patch)
    limit, out = "17MB", tmp_path / "out.parquet"
    layers = [Layer(str(path)), Layer(str(patch), ["s.n"])]
    doors: dict[str, Callable[[], object]] = {
        "value tier": lambda: plait.merge(
            path, out, sort_by="k", memory_limit=limit, copy_tiers=()
        ),
        "scan": lambda: list(plait.scan(path, memory_limit=limit)),
        "following scan": lambda: list(plait.scan(path, mode="follow", memory_limit=limit)),
        "verify": lambda: plait.verify(path, against=path, sort_by="k", memory_limit=limit),
        "overlay files": lambda: plait.overlay_files(layers, out, index="k", memory_limit=limit),
    }
    with pytest.raises(plait.MemoryLimitExceeded) as caught:
        doors[door]()
    text = str(caught.value)
    assert "zeros.parquet" in text
    assert "s.big" in text
    assert "4000" in text, text


def test_pages_within_the_limit_are_read(tmp_path: Path) -> None:
    path = zeros(tmp_path / "zeros.parquet", 10)
    table = pa.table(plait.scan(path, memory_limit="512MB"))
    assert table.num_rows == 10
    assert len(table["s"][0].as_py()["big"]) == 40_000_000
    report = plait.merge(path, tmp_path / "out", sort_by="k", copy_tiers=())
    assert report.rows_out == 10
