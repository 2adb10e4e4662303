"""What is to befall a process, told by its environment."""

import subprocess
import sys

import pytest

from toolfleet.testing import Point, clock_offset, kill_at, stop_at
from toolfleet.testing.fates import KILL_VARIABLE, Fate


@pytest.mark.parametrize("fate", [Fate(Point.CLAIMED), Fate(Point.EFFECT_DONE, 3), Fate(Point.PARKED, 2, "run-?.1.*")])
def test_a_fate_survives_being_written_down(fate):
    assert Fate.parse(str(fate)) == fate


def test_a_fate_may_be_written_by_hand():
    assert Fate.parse("effect_done") == Fate(Point.EFFECT_DONE)
    assert Fate.parse("effect_done:3") == Fate(Point.EFFECT_DONE, 3)


@pytest.mark.parametrize("wrong", ["nowhere", "claimed:often"])
def test_a_fate_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"nowhere|often"):
        Fate.parse(wrong)


def said_by(code, environment):
    program = f"import toolfleet.testing.instruments\nfrom toolfleet.points import Point, reached\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program], env={"PATH": "", **environment}, capture_output=True, text=True, check=False
    )


def test_a_process_dies_at_its_point_counting_only_ids_that_match():
    code = "for n in range(9): print(n, flush=True); reached(Point.CLAIMED, f'run.{n % 2}')"
    ended = said_by(code, kill_at("claimed", 2, "*.1"))
    assert ended.returncode == -9
    assert ended.stdout.split() == ["0", "1", "2", "3"]


def test_other_points_do_nothing():
    ended = said_by("reached(Point.SETTLED, 'x'); print('alive')", {**kill_at("claimed"), **stop_at("received")})
    assert (ended.returncode, ended.stdout) == (0, "alive\n")


def test_a_clock_may_be_wrong():
    code = "import time, datetime\nprint(round(time.time() - datetime.datetime.now().timestamp()))"
    assert said_by(code, clock_offset(-300)).stdout == "-300\n"


def test_several_fates_are_read_from_one_variable():
    ended = said_by("reached(Point.SETTLED, 'x')", {KILL_VARIABLE: "claimed:1,settled:1"})
    assert ended.returncode == -9
