"""`python -m toolfleet.workers`: the workers' command, quiet on Ctrl-C even while its modules are read."""

from __future__ import annotations

import os
import signal
from types import FrameType

from toolfleet.garbage import begin_rarely
from toolfleet.unused import unused_left_out


def _stop_before_begun(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"toolfleet: stopped\n")
    os._exit(128 + signal.SIGINT)


def _main() -> None:
    has_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if has_ctrl_c:
        signal.signal(signal.SIGINT, _stop_before_begun)
    # `toolfleet worker` keeps it from us until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    begin_rarely()
    with unused_left_out():
        from toolfleet.workers.command import main  # noqa: PLC0415  # takes a second

    if has_ctrl_c:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    _main()
