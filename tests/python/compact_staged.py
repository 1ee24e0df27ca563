"""Compacts a folder and kills itself at a stage: FOLDER STAGE SECONDS [STORAGE_OPTIONS as JSON].

A stage is `before` or `after` a call of the engine, or empty; after so many seconds, if not 0, the
process is killed wherever it is.
"""

import json
import os
import signal
import sys

import plait
from plait import _lease, _native, _plan, _planning

folder, stage, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])

options = json.loads(sys.argv[4]) if len(sys.argv) > 4 else None


def killed(when):
    if stage == when:
        os.kill(os.getpid(), signal.SIGKILL)


class Native:
    def __getattr__(self, name):
        call = getattr(_native, name)
        if name not in ("plan", "execute", "commit"):
            return call

        def staged(text, *args):
            text = text() if callable(text) else text
            # Of commits, some are about leases only.
            if name == "commit" and not json.loads(text).get("changes"):
                return call(text, *args)
            killed("before " + name)
            told = call(text, *args)
            killed("after " + name)
            return told

        staged.__name__ = name
        return staged


_lease._native = _plan._native = _planning._native = Native()
if seconds:
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, seconds)
report = plait.compact(folder, policy="overlap", sort_by="k", storage_options=options, yes=True)
print(len(report.groups), report.lost)
# Ending is not a stage: without its handler, the signal would be an error of another kind.
signal.setitimer(signal.ITIMER_REAL, 0)
