"""One of many processes that work on one folder: ROLE CASE, CASE being JSON.

    append    adds files whose keys are its own, and logs each before and after
    compact   merges what is there, by a policy that it draws
    expire    removes what was replaced, at retention 0
    read      scans, and compares with the logs: every row that was there before the scan once, no
              row twice, none that nobody wrote

Members of CASE: `folder`; `options`, the settings of a store or none; `logs`, a local folder; `seed`;
`files`, how many to append. The others end when there is a file `stop` in `logs`. What a role did is the last line of its output, as JSON. A read may fail: what it listed
was removed. It then says so by `SourceNotFound` or `SourceChanged`, and may be repeated.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import plait

ROWS = 5
# What says that the files of a list are not there any more: list again.
RETRYABLE = (plait.SourceNotFound, plait.SourceChanged)


class Case:
    """What the processes of a case share."""

    def __init__(self, text: str) -> None:
        case = json.loads(text)
        self.folder, self.options = case["folder"], case["options"]
        self.logs, self.seed, self.files = Path(case["logs"]), case["seed"], case["files"]

    def write(self, name: str, table: pa.Table) -> None:
        """A file that is there whole or not at all."""
        out = pa.BufferOutputStream()
        pq.write_table(table, out)
        body = out.getvalue().to_pybytes()
        if "://" in self.folder:
            bucket, _, prefix = self.folder.removeprefix("s3://").partition("/")
            self.client().put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=body)
            return
        path = Path(self.folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(body)
        hidden.rename(path)

    def client(self):
        import boto3

        if not hasattr(self, "_client"):
            self._client = boto3.client(
                "s3",
                endpoint_url=self.options["aws_endpoint_url"],
                aws_access_key_id="key",
                aws_secret_access_key="secret",
                region_name="us-east-1",
            )
        return self._client

    def logged(self, which: str) -> set[int]:
        """First keys of the files that appenders began, or ended, to write."""
        found = set()
        for path in self.logs.glob(f"*.{which}"):
            found |= {int(line) for line in path.read_text().split("\n")[:-1]}
        return found

    def read(self) -> Counter[int]:
        found = Counter[int]()
        # Batch by batch: PyArrow turns the errors of a stream into its own.
        for batch in plait.scan(self.folder, columns=["k"], storage_options=self.options):
            found.update(pa.record_batch(batch)["k"].to_pylist())
        return found

    def check(self) -> str | None:
        """Reads once, and says what is wrong."""
        before = self.logged("ended")
        found = self.read()
        after = self.logged("began")
        keys = {first + i for first in before for i in range(ROWS)}
        if lost := sorted(keys - set(found)):
            return f"lost {len(lost)} of {len(keys)} rows, {lost[:5]}"
        if twice := sorted(key for key, rows in found.items() if rows > 1):
            return f"{len(twice)} rows are there twice, {twice[:5]}"
        if strange := sorted(set(found) - {first + i for first in after for i in range(ROWS)}):
            return f"{len(strange)} rows were never written, {strange[:5]}"
        return None


def append(case: Case, rng: random.Random) -> str:
    """Keys are unlike those of all other appenders: the seed is part of them."""
    first = case.seed * 10_000_000 + case.count * 1_000
    line = f"{first}\n"
    with (case.logs / f"{case.seed}.began").open("a") as log:
        log.write(line)
    keys = [first + i for i in range(ROWS)]
    day = rng.randrange(2)
    case.write(f"day={day}/f-{case.seed:04}-{case.count:06}.parquet", pa.table({"k": keys}))
    with (case.logs / f"{case.seed}.ended").open("a") as log:
        log.write(line)
    time.sleep(rng.uniform(0, 0.05))
    return "appended"


def compact(case: Case, rng: random.Random) -> str:
    policy = rng.choice(["full", "full", "size_tiered"])
    how = {"policy": policy, "merge_factor": 3, "merge_factor_max": 4, "sort_by": "k"}
    try:
        done = plait.compact(case.folder, **how, storage_options=case.options, yes=True)
    except RETRYABLE as error:
        return f"failed: {error}"
    return "merged" if done.groups else "nothing to merge"


def expire(case: Case, rng: random.Random) -> str:
    done = plait.expire(case.folder, retention="0s", storage_options=case.options, yes=True)
    time.sleep(rng.uniform(0, 0.02))
    return "removed" if done.replaced or done.orphans else "nothing to remove"


def read(case: Case, _rng: random.Random) -> str:
    try:
        wrong = case.check()
    except RETRYABLE:
        return "listed again"
    if wrong is None:
        return "read"
    raise SystemExit(f"seed {case.seed}: {wrong}")


def main() -> None:
    role, case = sys.argv[1], Case(sys.argv[2])
    call = {"append": append, "compact": compact, "expire": expire, "read": read}[role]
    rng, did = random.Random(case.seed), Counter[str]()
    case.count = 0
    while case.count < case.files if role == "append" else not (case.logs / "stop").exists():
        did[call(case, rng)] += 1
        case.count += 1
    print(json.dumps(did))


if __name__ == "__main__":
    main()
