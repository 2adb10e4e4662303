"""The first example of each page, run as it stands there, on the fleet that `toolfleet up` starts."""

import asyncio
import re
import sys
from pathlib import Path

from tests.http.fleet_of_doors import api_of
from toolfleet.local.fleet import LocalFleet

DOCS = Path(__file__).parents[2] / "docs"


def first(page, language):
    return re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL).group(1)


async def printed(*command):
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_the_first_example_of_each_page_works(model):
    with LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}) as fleet:
        async with api_of(fleet.settings, model) as api:

            def here(text):
                return text.replace("http://127.0.0.1:8000", api.url)

            said = await printed("sh", "-c", here(first("http-api.md", "bash")))
            assert said.strip() == first("http-api.md", "json").strip()
            answer = await printed(sys.executable, "-c", here(first("openai-compatible.md", "python")))
            assert "689706.4865" in answer.replace(",", "")
