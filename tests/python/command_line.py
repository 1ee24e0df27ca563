"""The command `plait` in a process of its own, without the time that starting Python takes.

    test ── fork ──▶ plait.cli.main ──▶ exit code, standard output, standard error

Not here: what a new process is needed for, such as signals, pipes that close, and terminals.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings

import plait.cli


def plait_command(*arguments, cwd=None, env=None, text=True, timeout=60):
    """Runs `plait` with these arguments in a copy of this process, as `subprocess.run` would."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _run(arguments, (out.fileno(), err.fileno()), cwd, env)
        watched = os.pidfd_open(child)
        try:
            ended, _, _ = select.select([watched], [], [], timeout)
            if not ended:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        finally:
            os.close(watched)
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode() if text else file.read())
    if not ended:
        raise subprocess.TimeoutExpired(arguments, timeout, *printed)
    code = os.waitstatus_to_exitcode(status)
    return subprocess.CompletedProcess(["plait", *arguments], code, *printed)


def _run(arguments, files, cwd, env):
    code = 70
    try:
        if cwd is not None:
            os.chdir(cwd)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, *files)):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")
        )
        # Those of the tests are errors.
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        code = plait.cli.main(arguments)
        sys.stdout.flush()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
