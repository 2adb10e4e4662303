"""What the HTTP tools reach, and how much of it they read."""

import asyncio
from ipaddress import ip_address

import pytest

from toolfleet import ToolError
from toolfleet.errors import InvalidSettings
from toolfleet.public_addresses import is_public
from toolfleet.workers.packs import http as http_pack
from toolfleet.workers.packs.http import Http, HttpSettings
from toolfleet.workers.packs.net.charsets import charset_of, decoded
from toolfleet.workers.packs.net.gate import Gate, NotAllowed
from toolfleet.workers.packs.net.page import page_text
from toolfleet.workers.packs.pack_settings import read_pack_settings


def http(web, **settings):
    return Http(HttpSettings(allow=(f"127.0.0.1:{web.port}",), **settings))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "127.1", "2130706433", "0177.0.0.1", "0x7f000001", "0.0.0.0",
        "10.1.2.3", "172.16.0.1",
        "192.168.0.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "192.0.0.192", "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1",
        "fec0::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "::ffff:0:127.0.0.1",
    ],
)  # fmt: skip
async def test_what_is_not_public_is_refused_however_it_is_written(host):
    with pytest.raises(NotAllowed, match="not on the public internet"):
        await Gate().addresses(host, 80)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111"])
def test_public_addresses_are_public(address):
    assert is_public(ip_address(address))


async def test_an_exception_is_for_its_port_only(web):
    tools = http(web)
    assert (await tools.http_request(f"{web.url}/page"))["status"] == 200
    with pytest.raises(ToolError, match="not on the public internet"):
        await tools.http_request(f"http://127.0.0.1:{web.port + 1}/")
    with pytest.raises(ToolError, match="not on the public internet"):
        await tools.http_request(f"http://127.0.0.2:{web.port}/")


async def test_the_connection_goes_to_the_address_that_was_checked(web, monkeypatch):
    asked = []

    async def rebinding(self, host, port, **_):
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.9"
        return [(2, 1, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", rebinding)
    answer = await http(web).http_request(f"http://rebinding.example:{web.port}/echo")
    assert answer["status"] == 200
    assert asked[0] == "rebinding.example"
    assert f'"host": "rebinding.example:{web.port}"' in answer["body"]
    assert "rebinding.example" not in asked[1:]


async def test_every_redirect_is_checked(web):
    with pytest.raises(ToolError, match="not on the public internet"):
        await http(web).http_request(f"{web.url}/redirect?to=http://169.254.169.254/latest/meta-data")
    with pytest.raises(ToolError, match="only URLs that begin with http"):
        await http(web).http_request(f"{web.url}/redirect?to=file:///etc/passwd")
    with pytest.raises(ToolError, match="redirected more than 2 times"):
        await http(web, max_redirects=2).http_request(f"{web.url}/round")


async def test_headers_follow_a_redirect_on_one_server_and_to_no_other(web):
    tools = Http(HttpSettings(allow=(f"127.0.0.1:{web.port}", f"localhost:{web.port}")))
    for host, known in (("127.0.0.1", True), ("localhost", False)):
        url = f"{web.url}/redirect?to=http://{host}:{web.port}/echo"
        answer = await tools.http_request(url, headers={"x-api-key": "hush", "Authorization": "Bearer hush"})
        assert answer["url"] == f"http://{host}:{web.port}/echo"
        assert ("hush" in answer["body"]) is known


@pytest.mark.parametrize(
    "url", ["ftp://example.com", "example.com", "http://", "http://u:p@example.com", "http://[::1", ""]
)
async def test_what_is_no_url_to_fetch_is_refused(web, url):
    with pytest.raises(ToolError):
        await http(web).http_request(url)


@pytest.mark.parametrize("headers", [{"Host": "x"}, {"x": "a\r\nb: c"}, {"content-length": "5"}, {"": "x"}, {"x": "é"}])
async def test_headers_that_are_not_the_callers_are_refused(web, headers):
    with pytest.raises(ToolError, match="header"):
        await http(web).http_request(f"{web.url}/echo", headers=headers)


async def test_no_more_is_read_than_the_limit(web):
    answer = await http(web, max_bytes=100_000, max_chars=1000).http_request(f"{web.url}/endless")
    assert (len(answer["body"]), answer["cut"]) == (1000, True)


async def test_a_decompression_bomb_is_cut_while_it_unfolds(web):
    answer = await http(web, max_bytes=100_000).http_request(f"{web.url}/bomb")
    assert answer["cut"] is True
    assert (await http(web).http_request(f"{web.url}/zipped"))["body"] == "unzipped"
    with pytest.raises(ToolError, match="which was not asked for"):
        await http(web).http_request(f"{web.url}/brotli")


async def test_a_compressed_answer_that_ends_in_the_middle_is_not_told_as_whole(web):
    with pytest.raises(ToolError, match="ended in the middle"):
        await http(web).http_request(f"{web.url}/half_zipped")


async def test_a_server_that_dawdles_is_left(web):
    with pytest.raises(ToolError, match=r"127\.0\.0\.1 did not answer in full within 0.2 s"):
        await http(web, timeout_s=0.2).http_request(f"{web.url}/slow")


async def test_writing_methods_are_off_unless_a_setting_allows_them(web):
    with pytest.raises(ToolError, match="POST is not allowed here"):
        await http(web).http_send(f"{web.url}/echo", body="x")
    answer = await http(web, writing_methods=("post",)).http_send(
        f"{web.url}/echo", body="é", headers={"content-type": "text/plain"}
    )
    assert '"method": "POST"' in answer["body"]
    assert "é" in answer["body"].encode().decode("unicode_escape")


async def test_a_writing_request_follows_no_redirect(web):
    answer = await http(web, writing_methods=("POST",)).http_send(f"{web.url}/redirect?to=/echo")
    assert (answer["status"], answer["headers"]["location"]) == (302, "/echo")


async def test_a_page_is_text_in_its_charset_without_markup(web):
    page = await http(web).web_page(f"{web.url}/page")
    assert page["text"].splitlines()[0] == "Fish & chips"
    assert "Fresh every day." in page["text"]
    assert "cod" in page["text"]
    assert not [word for word in ("alert", "color", "<") if word in page["text"]]
    assert (await http(web).web_page(f"{web.url}/latin"))["text"] == "café"
    with pytest.raises(ToolError, match="status 404"):
        await http(web).web_page(f"{web.url}/gone")


async def test_what_is_no_text_is_named_and_cookies_are_kept_back(web):
    picture = await http(web).http_request(f"{web.url}/picture")
    assert picture["body"] == "[image/png, 4 bytes, not shown]"
    assert "set-cookie" not in (await http(web).http_request(f"{web.url}/page"))["headers"]
    head = await http(web).http_request(f"{web.url}/page", method="HEAD")
    assert (head["status"], head["body"]) == (200, "")


@pytest.mark.parametrize("html", ["", "   ", "no markup", "<", "<!-- only a comment -->", "\x00"])
def test_an_odd_page_is_text(html):
    assert "<!--" not in page_text(html.encode(), "utf-8")


def test_a_page_nested_without_end_does_no_harm():
    assert len(page_text(b"<div>" * 50_000 + b"deep", "utf-8")) < 10


async def test_a_page_made_to_be_costly_is_given_up_and_others_go_on_meanwhile(web, monkeypatch):
    with monkeypatch.context() as bounded:
        bounded.setattr(http_pack, "LAYOUT_TIMEOUT_S", 0.5)
        costly = asyncio.create_task(http(web).web_page(f"{web.url}/costly"))
        others = 0
        while not costly.done():
            others += (await http(web).http_request(f"{web.url}/echo"))["status"] == 200
        with pytest.raises(ToolError, match=r"laying out the page of 127\.0\.0\.1 took longer than 0\.5 s"):
            await costly
    assert others > 1
    # In another process, which may take its time to start.
    assert "Fish & chips" in (await http(web).web_page(f"{web.url}/page"))["text"]


@pytest.mark.parametrize("read", ["http_request", "web_page"])
async def test_a_charset_whose_decoding_takes_minutes_is_not_decoded(web, read):
    async with asyncio.timeout(20):
        answer = await getattr(http(web), read)(f"{web.url}/punycode")
    assert (answer.get("text") or answer.get("body")).startswith("-a0a0")


async def test_headers_of_an_answer_are_cut(web):
    assert len((await http(web).http_request(f"{web.url}/wordy"))["headers"]["link"]) == http_pack.MAX_HEADER_CHARS


@pytest.mark.parametrize(
    ("content_type", "codec"),
    [
        ("text/html; charset=Shift_JIS", "shift_jis"), ('text/html; charset="windows-1251"', "cp1251"),
        ("text/html;CHARSET=latin1", "iso8859-1"), ("text/html", "utf-8"), ("", "utf-8"),
        ("text/html; charset=punycode", "utf-8"), ("text/html; charset=zlib", "utf-8"),
        ("text/html; charset=unicode_escape", "utf-8"), ("text/html; charset=utf-7", "utf-8"),
        ("text/html; charset=\x00", "utf-8"), ("text/html; charset=" + "x" * 100_000, "utf-8"),
    ],
)  # fmt: skip
def test_only_charsets_of_the_web_are_decoded(content_type, codec):
    assert charset_of(content_type) == codec


def test_no_more_of_a_text_is_decoded_than_is_shown():
    assert decoded("é".encode() * 1000, "utf-8", 3) == "ééé"
    assert decoded("é".encode()[:1], "utf-8", 3) == "\N{REPLACEMENT CHARACTER}"
    assert decoded("日本".encode("iso2022_jp"), "iso2022_jp", 9) == "日本"


def test_settings_that_mean_nothing_are_refused_in_one_line(monkeypatch):
    monkeypatch.setenv("TOOLFLEET_HTTP_WRITING_METHODS", "POST,BREW")
    monkeypatch.setenv("TOOLFLEET_HTTP_TIMEOUT_S", "0")
    with pytest.raises(InvalidSettings, match=r"TOOLFLEET_HTTP_WRITING_METHODS: BREW.*; TOOLFLEET_HTTP_TIMEOUT_S: "):
        read_pack_settings(HttpSettings)
