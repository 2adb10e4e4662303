"""The HTTP API with traces, in a process of its own: says where it listens."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import own_telemetry  # noqa: F401  # as a user does it
import uvicorn
from opentelemetry import trace

from toolfleet.local.local_key import LocalKey
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat


async def main(base_url: str, folder: str) -> None:
    key = LocalKey(Path(folder) / "api.key")
    key.made()
    model = OpenAIChat(REHEARSAL_MODEL, base_url=base_url, api_key="rehearsal")
    app = create_app(model=model, options=ApiOptions(local_key_file=key.path))
    own = socket.socket()
    own.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve([own]))
    while not server.started:
        await asyncio.sleep(0.02)
    print(f"http://127.0.0.1:{own.getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving
    trace.get_tracer_provider().force_flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
