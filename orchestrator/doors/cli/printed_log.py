"""What a call's tool has logged, as `toolfleet calls logs` prints it: each line once, however often the log is read."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from toolfleet.call_log import AttemptLog, CallLog, LoggedLine
from toolfleet.orchestrator.doors.cli.telling import print_json
from toolfleet.orchestrator.doors.cli.wording import moment, plural
from toolfleet.terminal import harmless


class PrintedLog:
    """A log of which some has been printed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._printed: set[tuple[int, float, str, LoggedLine]] = set()
        self._attempt: tuple[int, float, str] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was printed yet."""
        return not self._printed

    def add(self, log: CallLog) -> None:
        """Print what is new in a log."""
        if log.lost and self.is_empty and not self._as_json:
            typer.echo(f"({plural(log.lost, 'earlier line')} kept no more)")
        now = {(*_name(attempt), line) for attempt in log.attempts for line in attempt.lines}
        for attempt in log.attempts:
            for line in attempt.lines:
                if (*_name(attempt), line) not in self._printed:
                    self._print(attempt, line)
        self._printed = now

    def _print(self, attempt: AttemptLog, line: LoggedLine) -> None:
        if self._as_json:
            print_json({"attempt": attempt.attempt, "worker": attempt.worker, **line.model_dump()})
            return
        if self._attempt != _name(attempt):
            self._attempt = _name(attempt)
            began = moment(attempt.began_unix_s)
            typer.secho(f"attempt {attempt.attempt}, worker {harmless(attempt.worker)}, {began} (UTC)", bold=True)
        at = f"{datetime.fromtimestamp(line.at_unix_s, UTC):%H:%M:%S}"
        # A text of many lines, as a traceback is, stands behind its first one.
        text = harmless(line.text).replace("\n", "\n    ")
        typer.echo(f"{at} {harmless(line.level):<8}{harmless(line.logger)}: {text}")


def _name(attempt: AttemptLog) -> tuple[int, float, str]:
    return attempt.attempt, attempt.began_unix_s, attempt.worker
