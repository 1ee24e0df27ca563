"""What was read of files before: the plan is the same with and without, and changes are noticed."""

import json
import os
import random
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _native
from plait._planning import plan_knowing

pytestmark = pytest.mark.local  # folders and objects of its own
CASES = 120 if os.environ.get("CI") else 25
ORDERS = ("k", "-k", "name, k", "k nulls first, -name")


def learn(paths, sort_by=None, storage_options=None, **options):
    """What planning will read of files, as executors read it; by path."""
    given = {"sources": paths, "sort_by": sort_by, "storage_options": storage_options or {}}
    files = _native.learn(json.dumps({**given, "trust_footers": True, **options}))
    return dict(zip(paths, files, strict=True))


def known_of(files):
    return _native.Known([file for file in files.values() if file is not None])


def made(paths, known, **options):
    """The plan, or the error."""
    try:
        return plan_knowing(paths, options, known).to_json()
    except plait.PlaitError as error:
        return f"{type(error).__name__}: {error}"


def table(rng, rows, order):
    columns = {
        "k": [rng.choice((None, rng.randrange(200))) for _ in range(rows)],
        "name": [f"n{rng.randrange(20)}" for _ in range(rows)],
        "v": [rng.random() for _ in range(rows)],
    }
    keys = [part.split() for part in order.split(", ")]
    rows_of = list(range(rows))
    for key in reversed(keys):
        name, down = key[0].removeprefix("-"), key[0].startswith("-")
        first = "first" in key

        def rank(i, name=name, down=down, first=first):
            value = columns[name][i]
            return (value is None) != (first != down), value if value is not None else 0

        # Reversed, nulls are where they are not asked for: their rank is turned beforehand.
        rows_of.sort(key=rank, reverse=down)
        if down:
            nulls = [i for i in rows_of if columns[name][i] is None]
            others = [i for i in rows_of if columns[name][i] is not None]
            rows_of = nulls + others if first else others + nulls
    return pa.table(
        {
            "k": pa.array([columns["k"][i] for i in rows_of], pa.int64()),
            "name": [columns["name"][i] for i in rows_of],
            "v": [columns["v"][i] for i in rows_of],
        }
    )


def write(rng, folder, order):
    """Files as different writers leave them; gives their paths."""
    folder.mkdir()
    for i in range(rng.randint(1, 7)):
        rows = rng.choice((0, 1, 30, 300, 3_000))
        found = table(rng, rows, order)
        path = folder / f"{i}.parquet"
        kind = rng.randrange(6)
        if kind == 0:
            found = found.drop_columns(["v"])
        if kind == 1 and rows:
            pq.write_table(found, folder / "draft")
            plait.merge(folder / "draft", path, sort_by=order, row_group_rows=100)
            (folder / "draft").unlink()
            continue
        pq.write_table(
            found,
            path,
            row_group_size=rng.choice((7, 100, 1 << 20)) if rows else None,
            data_page_size=rng.choice((100, 1 << 20)),
            write_page_index=rng.random() < 0.5,
            use_dictionary=rng.random() < 0.5,
        )
        if kind == 2 and rng.random() < 0.3:
            path.write_bytes(path.read_bytes()[: -rng.randrange(1, 200)])
        if kind == 3 and rows > 1 and rng.random() < 0.3:
            pq.write_table(found[::-1], path)
    return sorted(map(str, folder.glob("*.parquet")))


@pytest.mark.parametrize("seed", range(CASES))
def test_a_plan_is_the_same_when_parts_of_its_files_were_read_before(seed, tmp_path):
    rng = random.Random(seed)
    order = rng.choice(ORDERS)
    paths = write(rng, tmp_path / "in", order)
    options = rng.choice(({}, {"target_rows": rng.choice((10, 500))}, {"outputs": 3}))
    asked = rng.choice((order, order, order, None))
    learned = learn(paths, asked)
    # Executors may have been asked for another order, or not for all files.
    others = [learn(paths, "v"), {path: f for path, f in learned.items() if rng.random() < 0.5}]
    for files in (learned, *others):
        with_it = made(paths, known_of(files), sort_by=asked, **options)
        assert with_it == made(paths, None, sort_by=asked, **options)
        survey = {"folder": str(tmp_path / "in"), "sort_by": asked, "policy": "overlap"}
        assert surveyed(survey, known_of(files)) == surveyed(survey, None)


def surveyed(options, known):
    try:
        return _native.survey(json.dumps(options), None, None, known)
    except plait.PlaitError as error:
        return f"{type(error).__name__}: {error}"


def test_a_file_that_cannot_be_opened_is_left_to_whoever_plans(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 is not enough")
    paths = [str(tmp_path / "a.parquet"), str(tmp_path / "absent.parquet")]
    assert list(learn(paths, "k").values()) == [None, None]
    with pytest.raises(plait.InvalidArgument):
        learn(paths, "k k k")
    with pytest.raises(plait.InvalidArgument, match="not what was read of a file"):
        _native.Known([b"something else"])


def test_little_is_held_of_files_with_large_columns(tmp_path):
    rows = 100_000
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": range(rows), "v": [str(i) * 3 for i in range(rows)]}), path)
    (learned,) = learn([path], "k").values()
    # The footer, and the two pages of the key column at its ends.
    pages = plait.inspect(path, pages=True).row_groups[0].columns[0].pages
    assert 0 < len(learned) < os.path.getsize(path) / 2, pages


def test_a_local_file_that_changed_since_is_planned_as_it_is_now(tmp_path):
    paths = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    for path in paths:
        pq.write_table(pa.table({"k": range(100)}), path)
    known = known_of(learn(paths, "k"))
    pq.write_table(pa.table({"k": range(50, 70)}), paths[1])
    assert made(paths, known, sort_by="k") == made(paths, None, sort_by="k")
    os.unlink(paths[1])
    assert made(paths, known, sort_by="k").startswith("SourceNotFound")


# -- objects ---------------------------------------------------------------------------------------


@pytest.fixture
def bucket(s3_server):
    """Puts a folder into a new bucket; gives URLs, settings and the client."""
    settings = s3_server.options()
    client = s3_server.client()
    name = f"known-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)

    def put(paths):
        urls = []
        for path in paths:
            key = f"in/{os.path.basename(path)}"
            with open(path, "rb") as file:
                client.put_object(Bucket=name, Key=key, Body=file.read())
            urls.append(f"s3://{name}/{key}")
        return urls

    yield put, settings
    client.close()


@pytest.mark.parametrize("seed", range(CASES // 5))
def test_a_plan_of_objects_is_the_same(seed, bucket, tmp_path):
    put, settings = bucket
    rng = random.Random(f"objects {seed}")
    order = rng.choice(ORDERS)
    urls = put(write(rng, tmp_path / "in", order))
    options = {"sort_by": order, "storage_options": settings, "outputs": rng.choice((1, 3))}
    known = known_of(learn(urls, order, settings))
    assert made(urls, known, **options) == made(urls, None, **options)


def test_an_object_that_changed_since_is_refused_by_name(bucket, tmp_path):
    put, settings = bucket
    paths = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    for path in paths:
        pq.write_table(pa.table({"k": range(1000)}), path)
    urls = put(paths)
    known = known_of(learn(urls, "k", settings))
    of_footers = known_of(learn(urls, "absent", settings))
    pq.write_table(pa.table({"k": range(500, 1500)}), paths[1])
    put(paths[1:])
    # All that this plan needs was read: it is of the files that were, and executing it tells.
    options = {"sort_by": "k", "storage_options": settings}
    planned = plan_knowing(urls, options, known)
    with pytest.raises(plait.SourceChanged) as raised:
        planned.execute(tmp_path / "out.parquet")
    assert raised.value.path == urls[1]
    # More is to be read of it here.
    with pytest.raises(plait.SourceChanged) as raised:
        plan_knowing(urls, options, of_footers)
    assert raised.value.path == urls[1]
