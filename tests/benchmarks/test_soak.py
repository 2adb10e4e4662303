"""The soak, short, on real processes that are killed; and its judge, which has to find what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.soak.ledger import ANSWER, DOUBT, EFFECT, WRONG, Reader, Verdict

ROOT = Path(__file__).parents[2]


def test_a_short_soak_under_kills_loses_repeats_and_mispairs_nothing(tmp_path):
    file = tmp_path / "soak.json"
    options = ("--calls", "6000", "--kill-every-s", "1", "--keep-s", "5", "--json", str(file))
    ran = subprocess.run(
        (sys.executable, "-m", "benchmarks.soak", *options), capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "calls=6000 lost=0 duplicated=0 mispaired=0" in ran.stdout
    found = json.loads(file.read_text())
    assert found["kills"] >= 1
    # Nothing of the runs is left, whoever was killed; claims and results wait for copies and owners that may come.
    assert not found["keys_left"].keys() & {"run", "head", "calls"}


def written(folder: Path, *lines: str) -> Reader:
    ledger = folder / "ledger"
    ledger.write_text("".join(line + "\n" for line in lines))
    return Reader(ledger)


WHOLE = (f"{EFFECT} 0.0", f"{EFFECT} 0.1", f"{ANSWER} 0")


def test_a_ledger_in_which_all_went_well_is_clean(tmp_path):
    assert written(tmp_path, *WHOLE).verdict(1, 2) == Verdict(lost=0, duplicated=0, mispaired=0, in_doubt=0)


def test_an_effect_that_may_happen_once_is_counted_when_it_happens_again_and_another_is_not(tmp_path):
    verdict = written(tmp_path, *WHOLE, f"{EFFECT} 0.0", f"{EFFECT} 0.1").verdict(1, 2)

    assert (verdict.duplicated, verdict.is_clean) == (1, False)


def test_a_run_without_an_answer_and_a_call_told_as_done_that_left_no_effect_are_lost(tmp_path):
    verdict = written(tmp_path, f"{EFFECT} 0.0", f"{ANSWER} 0").verdict(2, 2)

    assert (verdict.lost, verdict.is_clean) == (2, False)


def test_a_message_of_another_call_is_mispaired_and_one_that_says_nobody_knows_is_not(tmp_path):
    verdict = written(tmp_path, *WHOLE, f"{WRONG} 0.1 0.0", f"{DOUBT} 0.0").verdict(1, 2)

    assert (verdict.mispaired, verdict.in_doubt, verdict.is_clean) == (1, 1, False)


def test_half_a_line_is_read_when_it_is_whole(tmp_path):
    reader = written(tmp_path, *WHOLE)
    with (tmp_path / "ledger").open("a") as file:
        file.write(ANSWER)
    reader.read_on()
    with (tmp_path / "ledger").open("a") as file:
        file.write(" 1\n")
    reader.read_on()

    assert reader.answered == {0, 1}
