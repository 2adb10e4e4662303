"""Questions and answers as they stand in Redis: each sealed for its place, an answer for the very words it answers.

So who has Redis and not the secret can neither ask nor answer, nor put an answer to other words. Sends no command.
"""

from __future__ import annotations

import hashlib
from typing import Final

from pydantic import ValidationError

from toolfleet.errors import Refused
from toolfleet.keys import Keys
from toolfleet.questions import Question, Said
from toolfleet.skipped import skip
from toolfleet.sleeping import Sleep
from toolfleet.wire import Seal

# The hash of a call's questions:
#   question:{key}  a sealed Question, written by the attempt that asked first
#   said:{key}      a sealed Said: an answer, or that it has expired; the first one counts
#   sleep:{key}     a sealed Sleep: until when the call sleeps, written by the attempt that came there first
#   parked, queue   the call's message in its queue's scheduled set, once it waits there

QUESTION: Final = "question:"
SAID: Final = "said:"
SLEEP: Final = "sleep:"
PARKED: Final = "parked"
QUEUE: Final = "queue"

AT_ONCE: Final = 1
"""The score of a scheduled message that is due."""


class SealedQuestions:
    """Closes and opens what stands in the hashes of calls that ask."""

    def __init__(self, keys: Keys, seal: Seal) -> None:
        self._keys = keys
        self._seal = seal

    def close(self, question: Question) -> bytes:
        """Return a question as it is stored."""
        text = question.model_dump_json(by_alias=True).encode()
        return self._seal.close_kept(text, self._place(QUESTION, question.call_id, question.key))

    def open(self, sealed: bytes | None, call_id: str, key: str) -> Question | None:
        """Return a stored question; None where nothing stands that one of ours has asked there."""
        if sealed is None:
            return None
        try:
            text = self._seal.open_kept(sealed, self._place(QUESTION, call_id, key))
            return Question.model_validate_json(text, extra="ignore")
        except (Refused, ValidationError) as error:
            skip("question", str(error) if isinstance(error, Refused) else "wrong shape", call_id=call_id)
            return None

    def close_sleep(self, sleep: Sleep) -> bytes:
        """Return a sleep as it is stored."""
        return self._seal.close_kept(sleep.model_dump_json().encode(), self._place(SLEEP, sleep.call_id, sleep.key))

    def open_sleep(self, sealed: bytes | None, call_id: str, key: str) -> Sleep | None:
        """Return a stored sleep; None where nothing stands that one of ours has begun there."""
        if sealed is None:
            return None
        try:
            text = self._seal.open_kept(sealed, self._place(SLEEP, call_id, key))
            return Sleep.model_validate_json(text, extra="ignore")
        except (Refused, ValidationError) as error:
            skip("sleep", str(error) if isinstance(error, Refused) else "wrong shape", call_id=call_id)
            return None

    def close_said(self, said: Said, question: Question) -> bytes:
        """Return what is said to a question as it is stored."""
        return self._seal.close_kept(said.model_dump_json().encode(), self._place_of_answer(question))

    def open_said(self, sealed: bytes | None, question: Question) -> Said | None:
        """Return what was said to just this question; None where nothing stands that one of ours has said."""
        if sealed is None:
            return None
        try:
            text = self._seal.open_kept(sealed, self._place_of_answer(question))
            return Said.model_validate_json(text, extra="ignore")
        except (Refused, ValidationError) as error:
            skip("answer", str(error) if isinstance(error, Refused) else "wrong shape", call_id=question.call_id)
            return None

    def _place(self, what: str, call_id: str, key: str) -> str:
        return f"{self._keys.questions(call_id)}\0{what}{key}"

    def _place_of_answer(self, question: Question) -> str:
        words = hashlib.sha256(question.model_dump_json(by_alias=True).encode()).hexdigest()
        return f"{self._place(SAID, question.call_id, question.key)}\0{words}"
