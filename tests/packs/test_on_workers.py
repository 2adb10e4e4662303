"""Every pack on real worker processes."""

import base64
import json

import pytest
from mcp_types import CallToolResult, ImageContent

from toolfleet.orchestrator import Orchestrator
from toolfleet.workers.packs.mcp_servers.given import given_by


async def test_P7_tools_of_an_mcp_server_are_called_on_the_worker_that_holds_the_connection(ask, fleet):
    long, *_ = [name for name in await _names(fleet) if name.endswith("does_for_a_name")]
    assert len(long) == 64
    first, second, token, named = await ask(
        ("local_pid", {}), ("local_pid", {}), ("local_environment", {"name": "TOKEN"}), (long, {})
    )
    assert first == second
    assert int(json.loads(first)["result"]) != next(worker.pid for worker in fleet.workers if worker.pool == "io")
    assert json.loads(token) == {"result": "hush"}
    assert json.loads(named) == {"result": "long"}


async def test_P7_only_the_tools_that_pass_the_filter_are_offered_under_prefixed_names(fleet):
    names = [name for name in await _names(fleet) if "mcp" in (await _specs(fleet))[name].tags]
    assert "local_add" in names
    assert not [name for name in names if "die" in name]


async def test_P7_a_picture_of_an_mcp_tool_is_one_for_models_that_can_see(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        result = await orchestrator.call("local_media", {})
    [picture] = result.media
    assert (picture.media_type, base64.b64decode(picture.data)) == ("image/png", b"\x89PNG12345")


@pytest.mark.parametrize(("data", "media_type"), [("not base64!", "image/png"), ("AAAA", "x" * 100_000), ("AAAA", "")])
def test_what_is_no_picture_is_told_as_what_it_says_that_it_is(data, media_type):
    told = given_by(CallToolResult(content=[ImageContent(data=data, mime_type=media_type)]))
    assert (told[:8], len(told) < 200) == ("[image: ", True)


async def test_P7_what_an_mcp_tool_gives_reaches_the_model_as_text(ask):
    person, media, failed, refused = await ask(
        ("local_person", {"name": "Ada"}),
        ("local_media", {}),
        ("local_fail", {"reason": "x"}),
        ("local_add", {"a": "b"}),
    )
    assert json.loads(person) == {"name": "Ada", "age": 42}
    assert media == "Look:\n[image/png, 9 bytes]\na memo"
    assert "fail" in failed
    assert "parameter 'a' is \"b\"" in refused


async def test_calculator_and_clock_answer(ask):
    result, moment = await ask(
        ("calculate", {"expression": "sqrt(2) ** 2 + 1"}), ("date_add", {"moment": "2024-01-31", "months": 1})
    )
    assert result == "3.0"
    assert json.loads(moment)["iso"] == "2024-02-29T00:00:00+00:00"


async def test_pages_are_read_where_it_is_allowed_and_nowhere_else(ask, web):
    page, refused = await ask(
        ("web_page", {"url": f"{web.url}/page"}), ("web_page", {"url": f"http://127.0.0.1:{web.port + 1}/"})
    )
    assert json.loads(page)["text"].startswith("Fish & chips\n")
    assert refused == "127.0.0.1 is not on the public internet, and only that may be reached"


async def test_weather_and_translation_show_their_keys_nowhere(ask, web, logs):
    now, forecast, missing, translated = await ask(
        ("weather_now", {"place": "London"}),
        ("weather_forecast", {"place": "London", "days": 2}),
        ("weather_now", {"place": "Nowhere"}),
        ("translate", {"text": "apple\npear", "target": "zh"}),
    )
    assert json.loads(now)["temperature_c"] == 11.2
    assert [day["max_c"] for day in json.loads(forecast)["days"]] == [13.1, 13.1]
    assert missing == "the weather service refused: No matching location found."
    assert json.loads(translated) == {"text": "«apple»\n«pear»", "source": "en", "target": "zh"}
    assert not [key for key in ("weather-key", "translate-key") if key in logs()]


async def test_files_are_listed_read_searched_and_written(ask):
    written = await ask(("write_file", {"path": "new.txt", "text": "third"}))
    listed, read, found = await ask(
        ("list_files", {}),
        ("read_file", {"path": "notes.txt"}),
        ("search_files", {"text": "THIRD", "ignore_case": True}),
    )
    assert written == ["wrote 5 bytes"]
    assert [entry["name"] for entry in json.loads(listed)["entries"]] == ["new.txt", "notes.txt"]
    assert json.loads(read)["text"] == "first\nsecond\n"
    assert json.loads(found)["hits"] == [{"path": "new.txt", "line": 1, "text": "third"}]


@pytest.mark.parametrize("query", ["DELETE FROM sold", "ATTACH 'x.db' AS x", "PRAGMA query_only = OFF"])
async def test_sql_is_read_and_never_written(ask, query):
    refused, counted = await ask(
        ("sql_query", {"query": query}), ("sql_query", {"query": "SELECT count(*) AS n FROM sold"})
    )
    assert refused.startswith("SQLite: ")
    assert json.loads(counted) == {"rows": [{"n": 500}], "cut": False}


async def _specs(fleet):
    from toolfleet.orchestrator import Orchestrator

    async with Orchestrator(settings=fleet.settings) as orchestrator:
        return await orchestrator.catalog.offered()


async def _names(fleet):
    return list(await _specs(fleet))
