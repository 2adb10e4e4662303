"""docs/scaling.md says what was measured: its tables are those of the files, and nobody has typed one."""

import pytest

from benchmarks.scale.kept import points_in, put_into
from benchmarks.scale.page import MARKED, PAGE, PICTURE, TABLES, filled
from benchmarks.scale.points import Point


def test_the_page_has_every_table_as_the_files_have_it():
    page = PAGE.read_text()
    assert {found["name"] for found in MARKED.finditer(page)} == set(TABLES)
    assert filled(page) == page, "write it anew: python -m benchmarks.scale.page"
    assert "<svg" in PICTURE.read_text()


def test_a_figure_that_was_typed_is_noticed():
    page = PAGE.read_text()
    assert filled(page.replace("| 1,000,000 |", "| 1,000,001 |")) == page


def point(at, **figures):
    costs = {"orchestrator_us": 1.0, "worker_us": 2.0, "redis_us": 3.0, "rewriting_us": 0.5}
    rest = {"commands": 7.0, "bytes_in": 1.0, "bytes_out": 1.0, "calls": 10, "seconds": 1.0, **costs, **figures}
    return Point(axis="workers", tool="wait_10ms", at=at, workers=at, orchestrators=1, **rest)


def test_a_later_measurement_takes_the_place_of_the_earlier_one_and_of_no_other(tmp_path):
    file = tmp_path / "points.json"
    put_into(file, [point(2), point(1)], {"date": "then"})
    put_into(file, [point(2, redis_us=9.0)], {"date": "now"})

    assert [(each.at, each.redis_us) for each in points_in(file)] == [(1, 3.0), (2, 9.0)]
    assert points_in(file)[1].cpu_us == pytest.approx(12.5)
