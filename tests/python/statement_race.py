"""Statements on a table by one thread, and compactions of it by another, at the same time.

statements   one after the other; what each has committed is checked
compactions  again and again; each waits before it commits, until some statements have ended

A table is a driver of one format: `check` after each statement, `check_all` at the end.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter

from statements import Model, compared

STATEMENTS = int(os.environ.get("PLAIT_STATEMENTS", "30"))
# The longest that a compaction waits for statements.
WAIT_S = 30


class Race:
    """Statements by this thread, compactions by another."""

    def __init__(self, seed, table):
        self.rng, self.table, self.told = random.Random(seed), table, Counter()
        self.ended, self.is_over, self.error = threading.Condition(), False, ""
        self.count = 0

    def wait(self):
        """Lets some statements end, so that others commit between survey and commit."""
        until = self.count + self.rng.choice([0, 0, 1, 1, 2])
        with self.ended:
            self.ended.wait_for(lambda: self.is_over or self.count >= until, WAIT_S)

    def _slowed(self):
        """Makes the commits of compactions wait; gives what undoes it."""
        owner = self.table.committer
        commit = owner.commit

        def waiting(table, change):
            self.wait()
            return commit(table, change)

        owner.commit = waiting
        return lambda: setattr(owner, "commit", commit)

    def _compactions(self):
        try:
            while not self.is_over:
                # Statements that begin anew lose against every commit.
                self.wait()
                report = self.table.compact(self.rng)
                self.told.update(compactions=1, merged=len(report.groups), thrown_away=report.lost)
                self.told["left_alone"] = max(self.told["left_alone"], len(report.skipped))
        except Exception:
            self.error = traceback.format_exc()

    def statements(self, model, count):
        """Runs statements while files are merged."""
        self.is_over = False
        undo = self._slowed()
        thread = threading.Thread(target=self._compactions)
        thread.start()
        try:
            for _ in range(count):
                self._statement(model)
                if self.error:
                    break
        finally:
            self.is_over = True
            self._next()
            thread.join()
            undo()
        assert not self.error, self.error

    def _statement(self, model):
        act, sql, rows = model.statement()
        try:
            self.table.run(sql)
        except Exception as error:
            if not any(text in str(error) for text in self.table.refused):
                raise
            self.told[f"refused {act}"] += 1
            rows = model.rows
        else:
            self.told[act] += 1
        self.table.check(sql, model.rows, rows)
        model.rows = rows
        self._next()

    def _next(self):
        with self.ended:
            self.count += 1
            self.ended.notify_all()


def session(jars, settings):
    """A Spark of this process, with libraries that it brings from Maven."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    all_settings = {
        "spark.jars.packages": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
        **settings,
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in all_settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def statements(table, seed):
    """A table under statements and compactions; what they tell."""
    model, race = Model(table.name, seed, table.acts, table.order), Race(seed, table)
    race.statements(model, STATEMENTS)
    about = {"kind": table.kind, "partitioned": table.is_partitioned}
    return {**about, **race.told, **table.check_all()}


def stream(table, reader, folder):
    """A streaming reader of rows that are inserted while they are compacted, and begun again."""
    model = Model(table.name, 1, ("insert",), table.order)
    race, batches, found = Race(1, table), [], []

    def take(frame, _):
        rows = frame.select("id", "k", "v", "part").collect()
        batches.append(len(rows))
        found.extend(tuple(row) for row in rows)

    def insert_some(count):
        writer = reader.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.foreachBatch(take).trigger(processingTime="300 milliseconds").start()
        race.statements(model, count)
        query.processAllAvailable()
        assert query.exception() is None
        query.stop()

    insert_some(12)
    # Without a reader.
    race.statements(model, 6)
    insert_some(12)
    compared(found, model.rows, "stream")
    return {"kind": "stream", "batches": len(batches), **race.told, **table.check_all()}


def main(cases, run):
    """Prints a line of JSON for each case: what it tells, or what went wrong."""
    for case in cases:
        began = time.monotonic()
        try:
            told = run(case)
        except Exception:
            told = {"error": traceback.format_exc()}
        told = {"case": case, "seconds": round(time.monotonic() - began, 1), **told}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
