"""What a batch shows while it runs, and at its end."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from toolfleet.messages import Usage, UserMessage
from toolfleet.orchestrator.batch import Prices, Tally
from toolfleet.orchestrator.doors.cli.batch_progress import print_summary, showing_batch
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run


def ended(state: State = State.DONE) -> Run:
    return Run(
        run_id="run",
        state=state,
        messages=(UserMessage(content="?"),),
        terms=RunTerms(),
        usage=Usage(input_tokens=1000, output_tokens=100),
    )


def test_a_terminal_shows_lines_rate_time_left_and_failures() -> None:
    shown = StringIO()
    tally = Tally(done_before=40)
    with showing_batch(Console(file=shown, force_terminal=True, width=120), total=100) as show:
        tally.count_run(ended(State.FAILED), run_time_s=0.1)
        for _ in range(19):
            tally.count_run(ended(), run_time_s=0.1)
        show(tally)
    assert "60/100" in shown.getvalue()
    assert "/s, " in shown.getvalue()
    assert " left, 1 failed" in shown.getvalue()


def test_the_summary_has_figures_and_a_cost_only_with_prices() -> None:
    tally = Tally()
    for hundredths in range(100, 0, -1):
        tally.count_run(ended(), run_time_s=hundredths / 100)
    tally.count_run(ended(), run_time_s=None)
    tally.count_failed(refused=True)
    summary = tally.summary("b", lines=102, wall_s=10.0, prices=Prices(input=2.0))
    assert (summary.runs, summary.ok, summary.failed, summary.refused, summary.joined) == (101, 101, 1, 1, 1)
    assert (summary.p50_s, summary.p99_s, summary.runs_per_s) == (0.5, 0.99, 10.1)
    assert summary.cost == 101 * 1000 * 2.0 / 1e6
    unpriced = tally.summary("b", lines=102, wall_s=10.0, prices=Prices())
    shown = StringIO()
    print_summary(unpriced, Console(file=shown, width=120))
    assert unpriced.cost is None
    assert "cost" not in shown.getvalue()
    assert "101 ok, 1 failed (1 of them cannot be run)" in shown.getvalue()
