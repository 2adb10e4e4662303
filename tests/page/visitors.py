"""Visitors of the page without a browser: they send what one would send, and whatever else they like."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.http.fleet_of_doors import WAIT_S, Api
from toolfleet.orchestrator.doors.http.key_store import Scope

SAME = {"sec-fetch-site": "same-origin"}


@asynccontextmanager
async def visitor(api: Api, key: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """Somebody with a cookie jar, signed in with a key if there is one."""
    async with httpx.AsyncClient(base_url=api.url, timeout=WAIT_S) as client:
        if key:
            answer = await client.post("/sign-in", data={"key": key}, headers=SAME)
            assert answer.status_code == 303, answer.text
        yield client


async def key_with(api: Api, *scopes: Scope, **others: object) -> tuple[str, str]:
    """A new key with these scopes, and its id."""
    key, stored = await api.door.keyring.add("of a test", scopes=scopes, **others)  # type: ignore[arg-type]  # passed on
    return key, stored.key_id
