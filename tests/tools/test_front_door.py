"""What a tool's author imports stays light."""

import subprocess
import sys

import toolfleet


def test_importing_toolfleet_loads_no_celery_no_httpx_no_redis():
    heavy = ["celery", "kombu", "httpx", "redis", "jsonschema", "typer", "rich", "aiohttp"]
    program = f"import sys, toolfleet; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_front_door_offers_what_it_names():
    assert [name for name in toolfleet.__all__ if not hasattr(toolfleet, name)] == []
