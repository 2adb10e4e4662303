# The names of the rehearsal model, and where they live.

from .faults import (
    CutStream as CutStream,
    Dialect as Dialect,
    Drip as Drip,
    ErrorInStream as ErrorInStream,
    ErrorStatus as ErrorStatus,
    Fault as Fault,
    Garbage as Garbage,
    Hang as Hang,
)
from .model import rehearsal_model as rehearsal_model
from .planner import plan as plan
from .reply import REHEARSAL_MODEL as REHEARSAL_MODEL
from .server import RehearsalServer as RehearsalServer
