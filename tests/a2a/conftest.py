from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
from stages import Stage, stage_of_its_own

from tests.a2a.agents import Agent
from tests.http.conftest import api, http_fleet, model
from toolfleet.orchestrator.doors.http.key_store import Scope

__all__ = ["api", "http_fleet", "model"]


@pytest.fixture
async def agent(api):
    """The agent as a client sees it whose tenant is this test's own, and which may do all that a client can."""
    async with Agent.of_tenant(api, f"tenant-{secrets.token_hex(4)}", Scope.RUN, Scope.APPROVE) as ours:
        yield ours


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with stage_of_its_own() as its:
        yield its
