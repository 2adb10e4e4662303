"""Has a worker hear late that its results have arrived."""

import asyncio

from toolfleet.workers.over.client import WorkClient

LATE_S = 1.5

_say = WorkClient.say


async def _say_slowly(self, what, *given, **options):
    answer = await _say(self, what, *given, **options)
    if what == "result":
        await asyncio.sleep(LATE_S)
    return answer


WorkClient.say = _say_slowly
