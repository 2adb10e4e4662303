"""One attempt: a message with what proves it, posted, and what the receiver said to it, within bounds.

On httpx's transport rather than its client, which would log every URL. Follows no redirect, and reads little.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, NamedTuple

import httpx
from standardwebhooks import Webhook

from toolfleet.orchestrator.errors import InvalidWebhook
from toolfleet.orchestrator.webhooks.addresses import addresses_of, checked_url
from toolfleet.orchestrator.webhooks.records import SHOWN_OF_ANSWER_CHARS, Owed
from toolfleet.orchestrator.webhooks.schedule import asked_wait_s
from toolfleet.settings import Settings

READ_BYTES: Final = 16 * 1024
"""So much of an answer is read; the connection is closed then, whatever is still to come."""

USER_AGENT: Final = "toolfleet-webhooks"

GONE: Final = 410


class Destination(NamedTuple):
    """Where a message goes, and what its receiver knows it by."""

    url: str
    secrets: Sequence[str] = ()
    """What it is signed with as Standard Webhooks says, if with anything."""
    headers: Mapping[str, str] = MappingProxyType({})
    """What else it has."""


class Outcome(NamedTuple):
    """What came of an attempt."""

    status: int | None
    error: str
    """Why the message is not delivered; "" where it is."""
    answer: str
    retry_after_s: float
    took_s: float


def signed_headers(owed: Owed, secrets: Sequence[str], at_unix_s: float) -> dict[str, str]:
    """Return the headers that prove a message: one signature for each secret that the receiver may have."""
    # The library takes what it is given as UTC.
    at = datetime.fromtimestamp(int(at_unix_s), UTC)
    signatures = [Webhook(secret).sign(owed.message_id, at, owed.body) for secret in secrets]
    return {
        "webhook-id": owed.message_id,
        "webhook-timestamp": str(int(at_unix_s)),
        "webhook-signature": " ".join(signatures),
    }


async def send(owed: Owed, to: Destination, settings: Settings) -> Outcome:
    """Post a message. Whatever the receiver does, this returns an outcome, and in time."""
    began_s, began_unix_s = time.monotonic(), time.time()
    status: int | None = None
    error, answer, retry_after_s = "", "", 0.0
    try:
        async with asyncio.timeout(settings.webhook_timeout_s):
            headers = {**to.headers, **(signed_headers(owed, to.secrets, began_unix_s) if to.secrets else {})}
            status, answer, asked = await _exchange(owed, to.url, headers, settings)
            error, retry_after_s = _why_not(status), asked_wait_s(asked)
    except TimeoutError:
        error = f"it did not answer in full within {settings.webhook_timeout_s:g} s"
    except InvalidWebhook as refused:
        error = str(refused)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as failed:
        error = f"it cannot be reached: {type(failed).__name__}"
    return Outcome(status, error, answer if error else "", retry_after_s, time.monotonic() - began_s)


def _why_not(status: int) -> str:
    if httpx.codes.is_success(status):
        return ""
    if httpx.codes.is_redirect(status):
        return f"it answered {status}: redirects are not followed"
    return f"it answered {status}"


async def _exchange(owed: Owed, to: str, headers: dict[str, str], settings: Settings) -> tuple[int, str, str]:
    """Return the status, the beginning of the answer, and its Retry-After."""
    url = checked_url(to)
    addresses = await addresses_of(url, settings.webhook_allowed)
    # No connection is kept: it was made to an address that was checked for this attempt only.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncHTTPTransport(verify=_tls(), trust_env=False, limits=limits) as transport:
        response = await _sent(transport, url, addresses, headers, owed.body.encode())
        try:
            content = await _beginning(response)
        finally:
            await response.aclose()
    return response.status_code, content, response.headers.get("retry-after", "")


async def _sent(
    transport: httpx.AsyncHTTPTransport, url: httpx.URL, addresses: Sequence[str], headers: dict[str, str], body: bytes
) -> httpx.Response:
    for position, address in enumerate(addresses, start=1):
        request = httpx.Request(
            "POST",
            url.copy_with(host=address),
            headers={
                "content-type": "application/json",
                **headers,
                "host": url.netloc.decode("ascii"),
                "user-agent": USER_AGENT,
                "accept-encoding": "identity",
            },
            content=body,
            # The name that the certificate must be for.
            extensions={"sni_hostname": url.host, "timeout": {"connect": None, "read": None, "write": None}},
        )
        try:
            return await transport.handle_async_request(request)
        except httpx.ConnectError:
            if position == len(addresses):
                raise
    raise httpx.ConnectError("the host has no address")


async def _beginning(response: httpx.Response) -> str:
    """Return what an answer begins with, as text whatever it is."""
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) >= READ_BYTES:
            break
    return content[: 4 * SHOWN_OF_ANSWER_CHARS].decode(errors="replace")[:SHOWN_OF_ANSWER_CHARS]


@functools.cache
def _tls() -> ssl.SSLContext:
    """Certificates as the machine has them: SSL_CERT_FILE names an authority of one's own."""
    return httpx.create_ssl_context()
