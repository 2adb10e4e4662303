"""A program that runs scripts as `python script.py` does, each in a process of its own, with Toolfleet in memory.

It is asked by lines of JSON on standard input, forks for each script, and answers with the exit status. A script that
is run so has its own globals, folder, environment and standard streams; what it has not is the wait for its imports,
which is most of what a short one takes.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

from toolfleet import LocalFleet, Orchestrator, rehearsal_model

WHAT_SCRIPTS_IMPORT = (LocalFleet, Orchestrator, rehearsal_model)


def main() -> None:
    """Answer until standard input ends; in the process of a script, return when that has ended."""
    assert threading.active_count() == 1, "a fork would leave the other threads behind"
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        if not (child := os.fork()):
            _run(**asked)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(script: str, folder: str, environment: dict[str, str], streams: list[Any]) -> None:
    gc.unfreeze()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in enumerate(streams):
        stream = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(stream, number)
        os.close(stream)
    sys.argv[:] = [script]
    sys.path[0] = str(Path(folder).resolve())
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
