"""What the agent says of itself, to everybody and to who has a key."""

from __future__ import annotations

import httpx
from a2a.client import A2ACardResolver
from a2a.types import GetExtendedAgentCardRequest

from tests.http.a2a_agents import CARD, Agent, said
from toolfleet.orchestrator.doors.http.key_store import Scope


async def test_U12_the_card_is_open_to_all_and_says_what_is_spoken_and_nothing_of_the_tools(api):
    async with httpx.AsyncClient() as anybody:
        card = await A2ACardResolver(anybody, api.url).get_agent_card()
        raw = await anybody.get(f"{api.url}{CARD}")
        again = await anybody.get(f"{api.url}{CARD}", headers={"if-none-match": raw.headers["etag"]})
        assert (await anybody.post(f"{api.url}{CARD}", json={})).status_code == 405
    assert [(each.url, each.protocol_binding, each.protocol_version) for each in card.supported_interfaces] == [
        (f"{api.url}/a2a", "JSONRPC", "1.0"),
        (f"{api.url}/a2a/v1", "HTTP+JSON", "1.0"),
        (f"{api.url}/a2a", "JSONRPC", "0.3"),
    ]
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (True, True)
    assert [each.id for each in card.skills] == ["answer"]
    old = raw.json()
    assert (old["url"], old["preferredTransport"], old["protocolVersion"][:3]) == (f"{api.url}/a2a", "JSONRPC", "0.3")
    assert old["supportsAuthenticatedExtendedCard"] is True
    assert (again.status_code, again.content) == (304, b"")


async def test_U12_who_has_a_key_is_shown_its_tools_as_skills(api, agent):
    card = await agent.client.get_extended_agent_card(GetExtendedAgentCardRequest())
    assert {"answer", "add", "pay"} <= {each.id for each in card.skills}
    for binding, version in (("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")):
        async with Agent.of_tenant(api, "t", Scope.RUN, tools=("add",), binding=binding, version=version) as narrow:
            shown = await narrow.client.get_extended_agent_card(GetExtendedAgentCardRequest())
            assert [each.id for each in shown.skills] == ["answer", "add"]
            task = await narrow.ask(said("call pay {}"))
            assert "pay" in task.artifacts[0].parts[0].text  # which its run does not have


async def test_U12_the_card_names_the_address_that_the_settings_say(http_fleet, api):
    api.door.settings = http_fleet.settings.model_copy(update={"public_url": "https://agents.example/"})
    async with httpx.AsyncClient() as anybody:
        card = (await anybody.get(f"{api.url}{CARD}", headers={"host": "evil.example"})).json()
    assert [each["url"] for each in card["supportedInterfaces"]] == [
        "https://agents.example/a2a",
        "https://agents.example/a2a/v1",
        "https://agents.example/a2a",
    ]
