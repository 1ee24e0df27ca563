"""Bytes and requests of merges between objects, with and without `server_side_copy`.

    .venv/bin/python benches/python/server_side_copy.py [--store azure] [--scale 2] [--rounds 2]

The files of W4 overlap their neighbours by 2 % of their rows; here they have many row groups. They
are on a server of this machine that copies parts: moto's for S3 (the extra `test`), or Azurite
(`npm`). Outputs of both merges must have the same bytes. Times are those of the server, mostly;
bytes and requests are ours.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from pathlib import Path

import obstore
import pyarrow.parquet as pq
import workloads

import plait

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

import azurite  # noqa: E402 - among the tests
import s3_server  # noqa: E402

BUCKET = "bench"


def s3():
    """A server of S3, and the URL and the client of a bucket there."""
    server = s3_server.Server()
    server.client().create_bucket(Bucket=BUCKET)
    options = server.options()
    client = obstore.store.S3Store(
        BUCKET,
        endpoint=options["aws_endpoint_url"],
        access_key_id=options["aws_access_key_id"],
        secret_access_key=options["aws_secret_access_key"],
        region=options["aws_region"],
        client_options={"allow_http": True, "timeout": "10m"},
    )
    return server, f"s3://{BUCKET}", client


def azure():
    """Azurite, and the URL and the client of a container there."""
    found, why = azurite.program()
    if found is None:
        sys.exit(why)
    server = azurite.Azurite()
    server.make(BUCKET)
    options = server.options()
    client = obstore.store.AzureStore(
        BUCKET,
        account_name=options["azure_storage_account_name"],
        account_key=options["azure_storage_account_key"],
        endpoint=options["azure_storage_endpoint"],
        client_options={"allow_http": True, "timeout": "10m"},
    )
    return server, f"az://{BUCKET}", client


STORES = {"s3": s3, "azure": azure}


def upload(client, files: list[Path], group_rows: int) -> int:
    """Uploads the files with row groups of so many rows; gives their size."""
    size = 0
    with tempfile.TemporaryDirectory() as name:
        for file in files:
            cut = Path(name) / file.name
            order = pq.SortingColumn.from_ordering(
                pq.read_schema(file), [(column, "descending" if down else "ascending")
                                       for column, down in workloads.KEYS["W4"]]
            )  # fmt: skip
            pq.write_table(
                pq.read_table(file),
                cut,
                row_group_size=group_rows,
                compression="zstd",
                compression_level=3,
                write_page_index=True,
                sorting_columns=order,
            )
            obstore.put(client, f"in/{file.name}", cut)
            size += cut.stat().st_size
            cut.unlink()
    return size


def digests(client, prefix: str) -> list[str]:
    """What the objects hold; removes them."""
    found = []
    keys = [entry["path"] for page in obstore.list(client, prefix) for entry in page]
    for key in sorted(keys):
        digest = hashlib.sha256()
        for piece in obstore.get(client, key).stream():
            digest.update(piece)
        found.append(digest.hexdigest())
        obstore.delete(client, key)
    return found


def run(store, asked, folder: Path) -> None:
    server, url, client = store
    workloads.prepare("W4", folder, asked.scale)
    size = upload(client, sorted(folder.glob("in-*.parquet")), asked.group_rows)
    print(f"{size / 1e6:.0f} MB in 16 files")
    print("copies  moved by us  of the files  by the store  requests  seconds  peak", flush=True)
    for number in range(asked.rounds):
        seen = []
        for copies in (False, True):
            out = f"out-{number}-{copies}"
            started = time.monotonic()
            report = plait.merge(
                f"{url}/in",
                f"{url}/{out}",
                outputs=4,
                row_group_rows=2 * asked.group_rows,
                server_side_copy=copies,
                storage_options=server.options(),
            )
            seconds = time.monotonic() - started
            moved = report.metrics
            ours = moved.sent_bytes + moved.received_bytes
            seen.append(digests(client, out))
            print(
                f"{'yes' if copies else 'no':<6}  {ours / 1e6:>8.0f} MB"
                f"  {ours / (2 * size):>11.1%}  {moved.server_copied_bytes / 1e6:>9.0f} MB"
                f"  {moved.requests:>8}  {seconds:>5.1f} s"
                f"  {report.memory.peak_accounted_bytes / 1e6:>3.0f} MB",
                flush=True,
            )
        assert seen[0] == seen[1], "outputs differ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=STORES, default="s3")
    parser.add_argument("--scale", type=float, default=2)
    parser.add_argument("--group-rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "bench-data/W4-copies")
    asked = parser.parse_args()
    store = STORES[asked.store]()
    try:
        run(store, asked, asked.folder)
    finally:
        store[0].stop()


if __name__ == "__main__":
    main()
