"""Results that are kept in Redis: given for their time, whatever anybody does to their keys."""

from __future__ import annotations

import asyncio

import pytest

from toolfleet.calls import Returned
from toolfleet.kept_results import KeptResults
from toolfleet.wire import Seal

KEPT = Returned(content="old")


@pytest.fixture
def store(settings, client):
    return KeptResults(client, settings.keys, Seal(settings))


async def test_a_kept_result_is_given_until_its_time_is_over_though_its_key_stays(settings, client, store):
    await store.put("d", KEPT, 0.5)
    await client.persist(settings.keys.cached("d"))
    assert await store.get("d") == KEPT
    await asyncio.sleep(0.6)
    assert await client.exists(settings.keys.cached("d")) == 1
    assert await store.get("d") is None


async def test_a_kept_result_is_given_for_its_own_question_only(settings, client, store):
    await store.put("d", KEPT, 60)
    await client.copy(settings.keys.cached("d"), settings.keys.cached("e"))
    assert (await store.get("d"), await store.get("e")) == (KEPT, None)
