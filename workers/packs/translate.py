"""Translation by Baidu's general API: form fields, signed with MD5 as its documentation asks.

The key signs and is never sent; neither logs nor errors show it.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import orjson
from pydantic import Field, SecretStr
from typing_extensions import TypedDict

from toolfleet import ToolError, tool
from toolfleet.workers.packs.net.fetch import FetchLimits, Request, fetch
from toolfleet.workers.packs.pack_settings import PackSettings, Seconds, for_pack, read_pack_settings

FORM: Final = "application/x-www-form-urlencoded"

ERRORS: Final = {
    "52001": "it took too long; try again",
    "52002": "it failed; try again",
    "52003": "it does not know the app id",
    "54000": "a field is missing",
    "54001": "the signature is wrong; check app id and key",
    "54003": "it is asked too often; try again later",
    "54004": "the account has no balance",
    "54005": "long texts are sent too often; try again in 3 seconds",
    "58000": "this machine's address is not on its list",
    "58001": "it does not translate into that language",
    "58002": "the service is switched off",
    "90107": "the account is not certified",
}
"""The documented codes that end a request."""


class TranslateSettings(PackSettings):
    """Whom to ask, and with which account."""

    model_config = for_pack("translate")

    app_id: str
    """The app id of the account. Required."""

    key: SecretStr
    """The key that belongs to it. Required."""

    url: str = "https://fanyi-api.baidu.com/api/trans/vip/translate"
    """Where the API is."""

    timeout_s: Seconds = 15.0
    """How long the service may take."""

    max_text_bytes: Annotated[int, Field(ge=1)] = 6000
    """The longest text, in UTF-8. 6000 is what the service asks for."""

    max_bytes: Annotated[int, Field(ge=1024)] = 256 * 1024
    """How much of an answer is read."""


class Translation(TypedDict):
    """A text in another language."""

    text: str
    source: str
    target: str


class Translator:
    """Asks one service."""

    def __init__(self, settings: TranslateSettings) -> None:
        self._settings = settings

    @tool(read_only=True)
    async def translate(self, text: str, target: str, source: str = "auto") -> Translation:
        """Translate a text; its lines stay lines.

        Args:
            text: up to about 2000 characters
            target: code of the language to translate into: zh, en, yue, jp, kor, fra, spa, th, ara, ru, pt, de, it…
            source: code of the text's language, or "auto"
        """
        size_bytes = len(text.encode("utf-8", "replace"))
        if not text.strip():
            raise ToolError("there is no text to translate")
        if size_bytes > self._settings.max_text_bytes:
            raise ToolError(
                f"the text has {size_bytes} bytes, and at most {self._settings.max_text_bytes} can be translated"
            )
        answer = await self._ask(text, source, target)
        try:
            return Translation(
                text="\n".join(line["dst"] for line in answer["trans_result"]),
                source=answer["from"],
                target=answer["to"],
            )
        except (KeyError, TypeError):
            raise ToolError("the translation service answered in a form that is not known") from None

    async def _ask(self, text: str, source: str, target: str) -> Any:
        settings = self._settings
        salt = secrets.token_hex(8)
        fields = {"q": text, "from": source, "to": target, "appid": settings.app_id, "salt": salt}
        fields["sign"] = signature(settings.app_id, text, salt, settings.key.get_secret_value())
        request = Request("POST", settings.url, {"content-type": FORM}, urlencode(fields).encode())
        fetched = await fetch(request, FetchLimits(settings.timeout_s, settings.max_bytes), gate=None)
        try:
            answer = orjson.loads(fetched.body)
        except ValueError:
            raise ToolError(f"the translation service answered with status {fetched.status} and no JSON") from None
        # Errors come with status 200.
        code = str(answer.get("error_code", "52000")) if isinstance(answer, dict) else "52000"
        if code != "52000":
            raise ToolError(f"the translation service refused: {ERRORS.get(code, 'it does not say why')} ({code[:20]})")
        return answer


def signature(app_id: str, text: str, salt: str, key: str) -> str:
    """The signature that the API asks for: the MD5 of app id, text, salt and key, in lower-case hexadecimal."""
    return hashlib.md5(f"{app_id}{text}{salt}{key}".encode(), usedforsecurity=False).hexdigest()


translate = Translator(read_pack_settings(TranslateSettings)).translate
