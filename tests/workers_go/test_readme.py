"""What workers-go/README.md shows is built and serves as it stands."""

import re

from tests.workers_go.building import REPOSITORY, built
from tests.workers_go.conftest import go_worker
from toolfleet.orchestrator import Orchestrator


async def test_X2_the_program_of_the_readme_of_go_serves_its_tool(settings, tmp_path):
    [shown] = re.findall(r"```go\n(.*?)```", (REPOSITORY / "workers-go" / "README.md").read_text(), re.DOTALL)
    program = tmp_path / "readme.go"
    program.write_text(shown)
    with go_worker(settings, built(program)):
        async with Orchestrator(settings=settings) as orchestrator:
            there = await orchestrator.call("file_size", {"path": str(program)})
            missing = await orchestrator.call("file_size", {"path": str(tmp_path / "missing")})
    assert there.content == str(len(shown.encode()))
    assert "no such file" in missing.message
