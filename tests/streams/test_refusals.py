"""What the transport does not do, it says: no message is lost in silence, no option is ignored."""

from __future__ import annotations

import pytest
from kombu import Connection, Exchange, Queue
from kombu.exceptions import ContentDisallowed

from tests.streams.harness import publish
from toolfleet.errors import InvalidSettings
from toolfleet.settings import Settings
from toolfleet.stream_urls import stream_url
from toolfleet.streams import check_broker_url, transport_options


@pytest.mark.parametrize(
    ("redis_url", "expected"),
    [
        ("redis://h:1/2", "streams://h:1/2"),
        ("rediss://:pw@h/0?ssl_ca_certs=ca.pem", "streamss://:pw@h/0?ssl_ca_certs=ca.pem"),
        ("unix:///run/redis.sock?db=3", "streams+socket:///run/redis.sock?virtual_host=3"),
        ("unix://:pw@/run/redis.sock", "streams+socket://:pw@/run/redis.sock"),
        ("sentinel://u:p@a:1,b:2/main?db=4", "streams-sentinel://u:p@a:1/4;streams-sentinel://u:p@b:2/4"),
    ],
)
def test_each_redis_url_has_a_stream_url(redis_url, expected):
    assert stream_url(redis_url) == expected


def test_an_unknown_scheme_is_refused_with_those_that_work():
    with pytest.raises(InvalidSettings, match=r"rabbit://; the schemes that work are streams://, streamss://.*amqp://"):
        check_broker_url("rabbit://localhost")


@pytest.mark.parametrize("url", ["streams://", "streams+socket:///s", "redis://h", "redis+socket:///s", "amqp://h"])
def test_known_schemes_pass(url):
    assert check_broker_url(url) == url


def test_sentinels_need_the_name_of_their_service():
    with pytest.raises(ValueError, match="master_name"):
        Connection("streams-sentinel://localhost:1").default_channel.client.ping()


def test_the_options_for_celery_carry_the_settings():
    options = transport_options(
        Settings(redis_url="sentinel://127.0.0.1:1/fleet", namespace="n", lease_s=9, heartbeat_s=2)
    )
    assert options["namespace"] == "n"
    assert options["lease_s"] == 9
    assert options["master_name"] == "fleet"
    assert options["socket_timeout"] == 5


def test_other_content_than_json_is_refused_at_the_sender(connect):
    with pytest.raises(ContentDisallowed, match="json serializer"):
        connect().Producer().publish("text", routing_key="io", content_type="text/plain")


def test_compression_is_refused_at_the_sender(connect):
    with pytest.raises(ContentDisallowed, match="compression"):
        connect().Producer().publish({"a": 1}, routing_key="io", compression="gzip")


def test_a_message_too_large_is_refused_at_the_sender(connect):
    with pytest.raises(ValueError, match="max_message_bytes"):
        publish(connect(max_message_bytes=1024), "io", "x" * 1024)


def test_expiring_messages_are_refused_at_the_sender(connect):
    with pytest.raises(NotImplementedError, match="expires"):
        connect().Producer().publish({}, routing_key="io", expiration=5)


def test_unsupported_options_arguments_and_exchanges_say_so(connect):
    with pytest.raises(NotImplementedError, match="namespace"):
        connect(global_keyprefix="x").default_channel  # noqa: B018  # the property connects
    with pytest.raises(NotImplementedError, match="x-max-length"):
        Queue("io", queue_arguments={"x-max-length": 5})(connect().default_channel).declare()
    with pytest.raises(NotImplementedError, match="headers"):
        Exchange("e", type="headers")(connect().default_channel).declare()


def test_two_namespaces_on_one_server_do_not_meet(connect, inbox):
    publish(connect(namespace="one"), "io", "a")
    assert inbox(namespace="two").nothing_comes()
    assert len(inbox(namespace="one").drain(1)) == 1
