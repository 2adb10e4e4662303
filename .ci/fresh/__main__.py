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

AT_ONCE = 2
"""pip keeps one core busy, and so does a Python whose commands are run one after the other."""

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
    for python, account in (newest, *others):
        print(f"Python {python.version} {account}", flush=True)
    smoke = Smoke(wheel, *newest, folder / "newest")
    bare = smoke.bare_environment()
    # The longest first: what is short at the end fills both cores to the last.
    works = [
        partial(check_newest, smoke, report),
        *(partial(check_commands, Smoke(wheel, *other, folder / other[0].version), report) for other in others),
        partial(report.check, "types", lambda: check_types(wheel, *newest, folder / "typed")),
        *(
            partial(
                report.check,
                f"[{extra}]",
                partial(check_extra, extra, modules, wheel, bare, folder / f"venv-{extra}", account=newest[1]),
            )
            for extra, modules in EXTRAS.items()
        ),
    ]
    with ThreadPoolExecutor(AT_ONCE) as beside:
        for work in [beside.submit(work) for work in works]:
            work.result()  # raises what is no failed check


def check_newest(smoke: Smoke, report: Report) -> None:
    """All commands, and then the image beside a fleet of theirs."""
    check_commands(smoke, report, everything=True)
    report.check("image", lambda: smoke.image(CHECKOUT))


def check_commands(smoke: Smoke, report: Report, *, everything: bool = False) -> None:
    """The commands, from an environment with nothing but the wheel and, where one needs it, its extra."""
    for name, work in (smoke.everything() if everything else smoke.the_least()).items():
        report.check(f"{smoke.python.version} {name}", work)


if __name__ == "__main__":
    sys.exit(main())
