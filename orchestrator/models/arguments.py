"""Arguments of a past call as a provider takes them back: always a JSON object, whatever the model once wrote.

Pure. Only for showing a history to a model; calls are run with the text as it was written.
"""

from __future__ import annotations

import json
from typing import Any

MALFORMED = "malformed_arguments"


def as_object(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object. Text that is none is shown under one key: the model should see its mistake."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except ValueError:
        return {MALFORMED: arguments}
    if value is None:
        return {}
    return value if isinstance(value, dict) else {MALFORMED: arguments}
