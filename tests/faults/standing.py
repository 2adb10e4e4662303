"""Calls that stand still where they are until a test lets them go on. Imported by workers, with `--instrument`.

A process says where a call has come and waits for a word; it goes on without one when nobody listens any more.
"""

from __future__ import annotations

import json
import os
import socket

from tests.faults.cells import Stage
from toolfleet.points import Point, install

STAND = "FAULTS_STAND"
"""The path of the socket where somebody listens."""

POINTS = {Point.RECEIVED: Stage.HANDED_OUT, Point.EFFECT_DONE: Stage.DONE}
"""Between the two the tool itself says that it has begun."""


def stand(stage: Stage, call_id: str) -> None:
    """Return when this call may go on."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.environ[STAND])
            connection.sendall(json.dumps([stage, call_id, os.getpid()]).encode() + b"\n")
            connection.recv(1)
    except OSError:
        return  # the test is over


def at_point(point: Point, subject_id: str) -> None:
    if stage := POINTS.get(point):
        stand(stage, subject_id)


if STAND in os.environ:
    install(at_point)
