"""A library in every process of a test, which logs at SIGUSR2, and begins a thread that fails."""

import logging
import os
import signal
import threading


def say(*_):
    logging.getLogger("some.library").error("my key is %s", os.environ["TOOLFLEET_SECRET"])
    thread = threading.Thread(target={}.pop, args=("nothing",))
    thread.start()
    thread.join()


signal.signal(signal.SIGUSR2, say)
