"""An orchestrator that nobody traces: runs a conversation, and says what is imported here and there."""

from __future__ import annotations

import asyncio
import json
import sys

from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat


async def main(base_url: str) -> None:
    async with Orchestrator(model=OpenAIChat(REHEARSAL_MODEL, base_url=base_url, api_key="rehearsal")) as fleet:
        run = await fleet.run("call what_is_imported {} call imported_in_a_child {}")
        results = [call.result.content for call in run.calls if call.result]
    here = sorted(
        name for name in sys.modules if name.split(".")[0] == "opentelemetry" or name == "toolfleet.tracing.spans"
    )
    print(json.dumps({"state": run.state, "there": results, "here": here, "trace": run.trace}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
