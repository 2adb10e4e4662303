"""Does it work on a machine that has nothing else? Builds the wheel, installs it and runs the commands for real.

    python3 .ci/fresh [--keep]

Needs Python 3.11 to 3.13 with venv, and a package index. Runs as an ordinary user with a read-only home where that can
be had (by root, on Linux). `--keep` leaves the folder with the environments, to look at what failed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from account import reachable
from extras import EXTRAS, check_extra
from install import build_wheel
from pythons import Python, pythons_here
from smoke import Smoke
from typed import check_types

EXTRAS_AT_ONCE = 2
"""pip keeps one core busy."""

CHECKOUT = Path(__file__).resolve().parents[2]


class Report:
    """One line for each check as it ends; what a failed one said follows at once and its name again at the end."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def check(self, name: str, work: Callable[[], object]) -> None:
        """Run one check, whatever became of those before."""
        began = time.monotonic()
        try:
            work()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            self.failed.append(name)
            print(f"FAILED  {name}: {error}", flush=True)
        else:
            print(f"ok      {name} ({time.monotonic() - began:.0f} s)", flush=True)


def main() -> int:
    """0 if everything works, otherwise 1."""
    # Ignored under nohup and in a script's background; the commands would inherit that, and are sent Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pythons = pythons_here()
    if not pythons:
        print("FAILED  there is no Python 3.11, 3.12 or 3.13 here: put one on PATH", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="fresh-", dir="/tmp"))  # sockets' paths must stay short
    report = Report()
    try:
        check_all(folder, pythons, report)
    finally:
        if "--keep" in sys.argv:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    if report.failed:
        print(f"\nFAILED on a fresh machine: {', '.join(report.failed)}", file=sys.stderr)
    return bool(report.failed)


def check_all(folder: Path, pythons: list[Python], report: Report) -> None:
    """The newest Python runs everything; the others what most depends on the version."""
    folder.chmod(0o755)
    wheel = build_wheel(CHECKOUT, folder, pythons[0])
    newest, *others = [reachable(python, folder) for python in pythons]
    smoke = Smoke(wheel, *newest, folder / "newest")
    check_commands(smoke, report, everything=True)
    report.check("image", lambda: smoke.image(CHECKOUT))
    report.check("types", lambda: check_types(wheel, folder / "typed", *newest))
    with ThreadPoolExecutor(EXTRAS_AT_ONCE) as beside:
        works = {
            f"[{extra}]": partial(check_extra, extra, modules, wheel, folder / f"venv-{extra}", newest)
            for extra, modules in EXTRAS.items()
        }
        list(beside.map(report.check, works, works.values()))  # raises what is no failed check
    for python, account in others:
        check_commands(Smoke(wheel, python, account, folder / python.version), report, everything=False)


def check_commands(smoke: Smoke, report: Report, *, everything: bool) -> None:
    """The commands, from an environment with nothing but the wheel and, where one needs it, its extra."""
    print(f"\n--- Python {smoke.python.version} {smoke.account}", flush=True)
    for name, work in (smoke.everything() if everything else smoke.the_least()).items():
        report.check(f"{smoke.python.version} {name}", work)


if __name__ == "__main__":
    sys.exit(main())
