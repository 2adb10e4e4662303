"""What docs/mcp.md says to copy, as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path("docs/mcp.md").read_text()
BIN = str(Path(sys.executable).parent)


def block(language):
    return re.search(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE).group(1)


def test_the_first_example_runs_as_it_stands(tmp_path):
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [sys.executable, "-c", block("python")],
        env={**os.environ, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # A client may not wait until the workers have stopped, and say so with SIGTERM.
    assert (ended.returncode, ended.stderr.replace("toolfleet: stopped\n", "")) == (0, "")
    tools, root = ended.stdout.splitlines()
    assert tools == "['square_root', 'sum', 'task_result', 'task_cancel']"
    assert root.startswith("1.414213562")


def test_the_settings_of_a_host_start_the_same_server():
    [host] = json.loads(block("json"))["mcpServers"].values()
    assert f'command="{host["command"]}", args={json.dumps(host["args"])}' in block("python")
