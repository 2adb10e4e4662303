"""What a test of batches has on its desk: files of lines, the command, and a model that remembers each request."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.cli.command import ENDS_WITHIN_S, Ended, Terminal
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.batch import (
    AskedLine,
    BatchRunner,
    Identity,
    Manner,
    Output,
    RefusedLine,
    Tally,
    opened_input,
    read_lines,
)
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.settings import Settings

LOOK_EVERY_S = 0.005

DEFAULT = Manner()


class Desk:
    def __init__(self, terminal: Terminal, server: RehearsalServer, settings: Settings) -> None:
        self.terminal = terminal
        self.server = server
        self.settings = settings
        server.requests = deque()  # all of them

    def path(self, name: str) -> Path:
        return self.terminal.folder / name

    def write(self, name: str, lines: Iterable[Any]) -> str:
        """A file of lines; text goes as it is, anything else as JSON."""
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        self.path(name).write_text("".join(f"{text}\n" for text in texts))
        return name

    def read(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path(name).read_text().splitlines()]

    async def batch(self, *words: str, said: str | None = None, **variables: str) -> Ended:
        """`toolfleet batch …` to its end, while the model goes on answering."""
        return await asyncio.to_thread(self.terminal.run, "batch", *words, said=said, **variables)

    async def batch_here(
        self,
        source: str,
        target: str,
        *,
        batch_id: str,
        manner: Manner = DEFAULT,
        watch: Callable[[BatchRunner], None] = lambda _: None,
    ) -> Tally:
        """The same without a process of its own; `watch` is called at every line read and written."""
        model = OpenAIChat(REHEARSAL_MODEL, base_url=self.server.base_url, api_key="rehearsal")
        identity = Identity.given(batch_id, model=REHEARSAL_MODEL)
        async with Orchestrator(model, settings=self.settings) as orchestrator:
            with (
                opened_input(str(self.path(source))) as lines,
                Output(str(self.path(target)), identity, again=manner.again) as output,
            ):
                runner = BatchRunner(orchestrator, identity, output, manner, lambda _: watch(runner))

                def read() -> Iterator[AskedLine | RefusedLine]:
                    for line in read_lines(lines.lines(), model=REHEARSAL_MODEL):
                        watch(runner)
                        yield line

                await runner.run(read())
        assert not runner.in_hand
        return runner.tally

    async def until_written(self, name: str, lines: int) -> None:
        """Wait until so many lines are in a file."""
        async with asyncio.timeout(ENDS_WITHIN_S):
            while (
                not self.path(name).exists() or self.path(name).read_bytes().count(b"\n") < lines
            ):  # a file tells nobody
                await asyncio.sleep(LOOK_EVERY_S)

    def asked(self) -> Counter[tuple[str, int]]:
        """How often each question was asked, by the model's turn in it."""
        return Counter(
            (request["messages"][0]["content"], sum(message["role"] == "assistant" for message in request["messages"]))
            for request in self.server.requests
        )


def rooted(number: int) -> dict[str, Any]:
    """A line whose answer quotes the square root of a number, after three replies of the model."""
    program = f'call square_root {{"x": {number}}} then call sum {{"numbers": [1, {number}]}}'
    return {"id": f"line-{number}", "question": program}
