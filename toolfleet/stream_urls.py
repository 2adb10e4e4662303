"""A Redis URL, and the URL of the stream transport on the same server. Pure text; knows neither Redis nor kombu."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit, urlunsplit

from toolfleet.errors import InvalidSettings

STREAM_SCHEMES: Final = {
    "redis": "streams",
    "rediss": "streamss",
    "unix": "streams+socket",
    "sentinel": "streams-sentinel",
}
"""A Redis URL's scheme, and the transport's."""


def stream_url(redis_url: str) -> str:
    """Return the broker URL for the server of a Redis URL. Raises InvalidSettings when it cannot be one.

    Several sentinels (`sentinel://a:26379,b:26379/service?db=0`) become kombu's form, one URL each; the service's name
    travels in the transport options (see `sentinel_service`).
    """
    url = urlsplit(redis_url)
    scheme = STREAM_SCHEMES.get(url.scheme)
    if scheme is None:
        known = ", ".join(f"{s}://" for s in STREAM_SCHEMES)
        raise InvalidSettings(f"redis_url has the unknown scheme {url.scheme}://; the schemes that work are {known}")
    if url.scheme == "sentinel":
        return _sentinel_urls(url, scheme)
    if url.scheme == "unix":
        return _socket_url(url, scheme)
    if (database := url.path.strip("/")) and not database.isdecimal():
        raise InvalidSettings(f"redis_url names the database {database!r}: databases have numbers, such as /0")
    return urlunsplit((scheme, *url[1:]))


def sentinel_service(redis_url: str) -> str | None:
    """Return the service that the sentinels watch, or None when the URL names no sentinel."""
    url = urlsplit(redis_url)
    return (url.path.strip("/") or "mymaster") if url.scheme == "sentinel" else None


def _socket_url(url: SplitResult, scheme: str) -> str:
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    if "db" in query:
        query["virtual_host"] = query.pop("db")
    return f"{scheme}://{url.netloc}{url.path}" + (f"?{urlencode(query)}" if query else "")


def _sentinel_urls(url: SplitResult, scheme: str) -> str:
    credentials, at, hosts = url.netloc.rpartition("@")
    database = parse_qs(url.query).get("db", ["0"])[-1]
    return ";".join(f"{scheme}://{credentials}{at}{host}/{database}" for host in hosts.split(","))
