"""Scripts of pages as processes that end: by `python` itself, or forked from one that is warm, for all but the first.

Of a page's scripts the first is run as its reader does it. Most of what another one takes is to import once more what
that one has imported, a second for each of eighty; `tests.docs.warm_python` has done so before.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = Path(__file__).with_name("warm_python.py")


def run_cold(
    command: list[str], folder: Path, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which comes in time, or it is killed and TimeoutExpired raised."""
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


class WarmPython:
    """One process that forks for each script. Close it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM],
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script: Path, environment: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a script in its folder, as `run_cold` does."""
        streams = [os.devnull, f"{script}.out", f"{script}.err"]
        asked = {
            "script": script.name,
            "folder": str(script.parent),
            "environment": dict(environment),
            "streams": streams,
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            self.kill()
        code = self._process.stdout.readline()
        output, errors = (Path(stream).read_text() for stream in streams[1:])
        assert code, f"{script.name} did not end within {timeout_s} s: {output}\n{errors}"
        return subprocess.CompletedProcess([script.name], int(code), output, errors)

    def kill(self) -> None:
        """End it, and the script that it runs."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it after its last script."""
        self._process.communicate()
