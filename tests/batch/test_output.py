"""The output file is the ledger: what may be in it, what is repaired, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolfleet.orchestrator.batch import Identity, Output
from toolfleet.orchestrator.batch.input import MAX_LINE_BYTES, opened_input
from toolfleet.orchestrator.batch.own_format import written_refused, written_unbegun
from toolfleet.orchestrator.batch.records import RefusedLine
from toolfleet.orchestrator.errors import InputUnreadable, InvalidBatchId, OutputUnusable

BATCH = Identity.given("batch", model="model")


def line_of(number: int, batch: Identity = BATCH) -> bytes:
    return written_unbegun(number, number, batch.run_id(number), "no")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def test_what_is_written_is_held_here_and_after_the_next_start(path: Path) -> None:
    refused = written_refused(RefusedLine(2, None, "own", "line 2: not JSON"))
    with Output(str(path), BATCH) as output:
        output.write(line_of(1), run_id=BATCH.run_id(1))
        output.write(refused, run_id=None)
        assert output.holds_run(BATCH.run_id(1))
    with Output(str(path), BATCH) as output:
        assert output.holds_run(BATCH.run_id(1))
        assert output.holds_line(refused)
        assert not output.holds_run(BATCH.run_id(2))
        assert len(output) == 2


@pytest.mark.parametrize("kept", range(1, 40, 3))
def test_a_torn_last_line_is_removed(path: Path, kept: int) -> None:
    path.write_bytes(line_of(1) + b"\n" + line_of(2)[:kept])
    with Output(str(path), BATCH) as output:
        assert not output.holds_run(BATCH.run_id(2))
        output.write(line_of(3), run_id=BATCH.run_id(3))
    assert path.read_bytes() == line_of(1) + b"\n" + line_of(3) + b"\n"


def test_a_whole_last_line_may_have_lost_its_line_break(path: Path) -> None:
    path.write_bytes(line_of(1))
    with Output(str(path), BATCH) as output:
        output.write(line_of(2), run_id=BATCH.run_id(2))
    assert path.read_bytes() == line_of(1) + b"\n" + line_of(2) + b"\n"


@pytest.mark.parametrize(
    "content", [b"notes", b"notes\n", b'{"id": 1}\n', b"[]\n", b"{}\n", b'{"id":1,"question":"?"}']
)
def test_a_file_with_something_else_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with (
        pytest.raises(OutputUnusable, match="something else than a batch's output in line 1"),
        Output(str(path), BATCH),
    ):
        pass
    assert path.read_bytes() == content


def test_the_output_of_another_batch_is_left_as_it_is(path: Path) -> None:
    for other in (Identity.given("other", model="model"), Identity.given("batch", model="other")):
        path.write_bytes(line_of(1, other) + b"\n")
        with pytest.raises(OutputUnusable, match="holds the output of another batch"), Output(str(path), BATCH):
            pass


@pytest.mark.parametrize("again", [False, True])
def test_one_process_at_a_time_writes_a_file(path: Path, again: bool) -> None:
    path.write_bytes(line_of(1) + b"\n")
    with (
        Output(str(path), BATCH, again=again),
        pytest.raises(OutputUnusable, match="another process is writing"),
        Output(str(path), BATCH),
    ):
        pass


def test_what_is_in_the_way_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputUnusable, match="cannot be written: Is a directory"), Output(str(tmp_path), BATCH):
        pass
    with pytest.raises(InputUnreadable, match="cannot be read: No such file"), opened_input(str(tmp_path / "no")):
        pass
    with pytest.raises(InvalidBatchId, match="letters, digits"):
        Identity.given("a b", model="model")


def test_a_line_without_end_costs_no_more_memory_than_one_may(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    with path.open("wb") as file:
        file.seek(3 * MAX_LINE_BYTES)  # a hole: zeros that take no room
        file.write(b'\n{"id": 1}')
    with opened_input(str(path)) as source:
        long, short = source.lines()
        assert (source.count, long.number, long.is_too_long, short.number) == (2, 1, True, 2)
        assert len(long.text) == MAX_LINE_BYTES + 1


def test_ids_are_derived_from_input_options_and_model() -> None:
    one = Identity.derived("abc", {"slow": "wait"}, model="m")
    assert one == Identity.derived("abc", {"slow": "wait"}, model="m")
    others = [
        Identity.derived("abd", {"slow": "wait"}, model="m"),
        Identity.derived("abc", {"slow": "handle"}, model="m"),
        Identity.derived("abc", {"slow": "wait"}, model="n"),
    ]
    assert len({each.run_id("x") for each in (one, *others)}) == 4
    assert one == Identity.given(one.batch_id, model="m")
    assert one.run_id(1) == one.run_id("1")
