"""How much of the processor a session leaves to others: on Linux sessions share it first, and the threads of each then.

See "The autogroup feature" in sched(7). A process that began a session of its own has a nice value that counts within
it, and means nothing to anybody else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

AUTOGROUP: Final = Path("/proc/self/autogroup")


def set_session_niceness(niceness: int) -> bool:
    """Set the nice value of the session that this process has begun. False when it is to be said again in a moment.

    0 is what every session begins with, and anybody may go back to it. Does nothing in a session that others have
    begun, nor where sessions do not share the processor.
    """
    if os.getsid(0) != os.getpid():
        return True
    try:
        AUTOGROUP.write_text(str(niceness))
    except BlockingIOError:  # the kernel takes ten of these in a second, of all sessions
        return False
    except OSError:
        pass  # there is no such file in many places, nor may everybody write to it
    return True
