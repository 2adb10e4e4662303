"""Imported by a worker: writes down, in the file that WAYS_TAKEN names, which calls go the quick way."""

import os
from pathlib import Path

from toolfleet.workers.celery.quick_lane import QuickRequest

begin = QuickRequest.begin


def begin_and_write_down(self):
    with Path(os.environ["WAYS_TAKEN"]).open("a") as file:
        file.write(f"{self.id}\n")
    begin(self)


QuickRequest.begin = begin_and_write_down
