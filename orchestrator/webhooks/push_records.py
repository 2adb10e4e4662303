"""Where a run is told of as a task of A2A: a configuration as it is stored, and what becomes headers. Values only.

Says nothing of the protocol's own records: whoever sends needs none of them.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal, NamedTuple

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.orchestrator.errors import InvalidWebhook
from toolfleet.orchestrator.webhooks.records import PUSH_PREFIX

CONFIGS_MAX: Final = 10
"""Of one task: each is one more message whenever it asks somebody or ends."""

TASKS_MAX: Final = 10_000
"""Of one tenant: its tasks with configurations that go on at the same time."""

ID_CHARS_MAX: Final = 256
TOKEN_CHARS_MAX: Final = 1024
CREDENTIALS_CHARS_MAX: Final = 4096

TOKEN_HEADER: Final = "X-A2A-Notification-Token"  # noqa: S105  # the name of a header

SCHEME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", re.ASCII)
"""A token of HTTP (RFC 9110, 5.6.2)."""

VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", re.ASCII)
"""What a header's value may be, so that nothing of it is another header."""

Protocol = Literal["1.0", "0.3"]


class Secrets(NamedTuple):
    """What a receiver knows us by. Told to nobody else."""

    token: str = ""
    credentials: str = ""


class PushConfig(Record):
    """One configuration of one task."""

    v: Literal[1] = 1
    config_id: str
    run_id: str
    tenant: str = ""
    url: str
    protocol: Protocol
    """In whose words it was asked for, and is told."""
    base_url: str = ""
    """Where this API was reached then: links in what is told begin so, unless the settings say."""
    scheme: str = ""
    """How the receiver wants us to authenticate; "" for not at all."""
    token: str = Field(default="", repr=False)
    """Hidden, as are the credentials."""
    credentials: str = Field(default="", repr=False)

    @property
    def endpoint_id(self) -> str:
        """What its messages are kept under: the same for all of a tenant, so that they share its places."""
        return PUSH_PREFIX + hashlib.sha256(self.tenant.encode()).hexdigest()[:16]


def checked_secrets(token: str, scheme: str, credentials: str) -> Secrets:
    """Return what becomes headers, if it can. Raises InvalidWebhook."""
    if token and (len(token) > TOKEN_CHARS_MAX or not VALUE.fullmatch(token)):
        raise InvalidWebhook(f"the token is no header's value: printable ASCII, {TOKEN_CHARS_MAX} characters at most")
    if scheme and not SCHEME.fullmatch(scheme):
        raise InvalidWebhook("the scheme of authentication is none of HTTP's, such as Bearer or Basic")
    if credentials and not scheme:
        raise InvalidWebhook("there are credentials and no scheme of authentication: say Bearer, or Basic")
    if credentials and (len(credentials) > CREDENTIALS_CHARS_MAX or not VALUE.fullmatch(credentials)):
        raise InvalidWebhook(
            f"the credentials are no header's value: printable ASCII, {CREDENTIALS_CHARS_MAX} characters at most"
        )
    return Secrets(token, credentials)


def headers_of(config: PushConfig, secrets: Secrets) -> dict[str, str]:
    """Return what a receiver knows our message by, in the protocol's words (A2A 1.0, 4.3.3)."""
    headers = {"content-type": "application/a2a+json" if config.protocol == "1.0" else "application/json"}
    if secrets.token:
        headers[TOKEN_HEADER] = secrets.token
    if config.scheme and secrets.credentials:
        headers["authorization"] = f"{config.scheme} {secrets.credentials}"
    return headers
