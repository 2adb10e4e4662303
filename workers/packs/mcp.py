"""The tools of MCP servers, over stdio and Streamable HTTP: listed when the worker starts and when they change.

Every worker holds connections of its own, one for each server, opened when it is followed or called first, and again
after a loss. How a tool is delivered and repeated is the fleet's matter: here its hints become an effect, and nothing
is called twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from toolfleet import Tool
from toolfleet.changing_tools import ChangingTools, Tell
from toolfleet.errors import InvalidTool
from toolfleet.logs import FactLog
from toolfleet.toolbox import by_name
from toolfleet.workers.packs.mcp_servers.configuration import McpSettings, servers_in
from toolfleet.workers.packs.mcp_servers.offers import Offers
from toolfleet.workers.packs.mcp_servers.remote import Listed, Remote
from toolfleet.workers.packs.pack_settings import read_pack_settings

log = FactLog("toolfleet.packs.mcp")


class ServersTools(ChangingTools):
    """The tools of all configured servers."""

    def __init__(self, settings: McpSettings) -> None:
        """List what there is now. Raises InvalidSettings, ToolError, DuplicateTool."""
        servers = servers_in(settings.config)
        self._remotes = {name: Remote(name, server, settings) for name, server in servers.items()}
        self._offers = {name: Offers(name, server, self._remotes[name]) for name, server in servers.items()}
        self._are_followed = [name for name, server in servers.items() if server.follow]

        async def all_listed() -> list[Listed]:
            return await asyncio.gather(*(remote.listed() for remote in self._remotes.values()))

        # On a thread: whoever imports this may have an event loop running.
        with ThreadPoolExecutor(1) as thread:
            listed = thread.submit(asyncio.run, all_listed()).result()
        self._listed = dict(zip(self._remotes, listed, strict=True))
        made = [found for name, text in self._written() if (found := self._made(name, text)) is not None]
        self.tools = by_name(tool for tool, _ in made)
        self._at_start = {tool.spec.name: text for tool, text in made}

    @property
    def at_start(self) -> Mapping[str, str]:
        """What the servers had when the worker was started."""
        return self._at_start

    def made_of(self, written: str) -> Tool[..., Any]:
        """The tool of one of the servers. Raises InvalidTool."""
        said = json.loads(written)
        return self._offers[said["server"]].made_of(said)

    async def follow(self, tell: Tell) -> None:
        """Tell what all servers have, each time that one of them has something else."""
        one_at_a_time = asyncio.Lock()

        async def follow(name: str, remote: Remote) -> None:
            async def heard(listed: Listed) -> None:
                async with one_at_a_time:
                    self._listed[name] = listed
                    await tell(_first_of_each_name(self._written()))

            await remote.follow(heard)

        async with asyncio.TaskGroup() as following:
            for name in self._are_followed:
                # watched: by the group, whose end whoever follows hears of
                following.create_task(follow(name, self._remotes[name]))

    def _written(self) -> Iterator[tuple[str, str]]:
        for name, offers in self._offers.items():
            yield from offers.written(self._listed[name])

    def _made(self, name: str, text: str) -> tuple[Tool[..., Any], str] | None:
        try:
            return self.made_of(text), text
        except InvalidTool as error:
            log.warning("mcp_tool_refused", tool=name[:100], reason=str(error)[:500])
            return None


def _first_of_each_name(written: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in written:
        if found.setdefault(name, text) is not text:
            log.warning("mcp_tool_refused", tool=name[:100], reason="another server has a tool of this name")
    return found


# At `info`, every request is logged with its URL, and some servers are given their key there.
logging.getLogger("httpx2").setLevel(logging.WARNING)

FOLLOWED = ServersTools(read_pack_settings(McpSettings))
globals().update(FOLLOWED.tools)
