"""A real HTTP server on a port of its own, with pages, traps and the shapes of two services."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import zlib
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

PAGE = """<html><head><title>t</title><style>p {color: red}</style><script>alert(1)</script></head>
<body><h1>Fish &amp; chips</h1><p>Fresh  every
day.</p><ul><li>cod</li><li>haddock</li></ul></body></html>"""

PLACE = {
    "name": "London", "region": "City of London, Greater London", "country": "United Kingdom", "lat": 51.5171,
    "lon": -0.1062, "tz_id": "Europe/London", "localtime_epoch": 1764232379, "localtime": "2025-11-27 08:32",
}  # fmt: skip
CONDITION = {"text": "Overcast", "icon": "//cdn.weatherapi.com/weather/64x64/day/122.png", "code": 1009}
CURRENT = {
    "last_updated_epoch": 1764232200, "last_updated": "2025-11-27 08:30", "temp_c": 11.2, "temp_f": 52.2, "is_day": 1,
    "condition": CONDITION, "wind_mph": 10.1, "wind_kph": 16.2, "wind_degree": 225, "wind_dir": "SW",
    "pressure_mb": 1015.0, "pressure_in": 29.97, "precip_mm": 0.0, "precip_in": 0.0, "humidity": 94, "cloud": 100,
    "feelslike_c": 9.3, "feelslike_f": 48.7, "vis_km": 10.0, "vis_miles": 6.0, "uv": 0.1, "gust_mph": 15.2,
}  # fmt: skip
DAY = {
    "date": "2025-11-27", "date_epoch": 1764201600,
    "day": {
        "maxtemp_c": 13.1, "maxtemp_f": 55.6, "mintemp_c": 9.0, "mintemp_f": 48.2, "avgtemp_c": 11.4,
        "avgtemp_f": 52.5, "maxwind_mph": 14.8, "maxwind_kph": 23.8, "totalprecip_mm": 0.4, "totalprecip_in": 0.02,
        "totalsnow_cm": 0.0, "avgvis_km": 9.8, "avghumidity": 87, "daily_will_it_rain": 1, "daily_chance_of_rain": 86,
        "daily_will_it_snow": 0, "daily_chance_of_snow": 0, "condition": CONDITION, "uv": 0.3,
    },
    "astro": {"sunrise": "07:38 AM", "sunset": "03:57 PM", "moonrise": "12:48 PM", "moonset": "10:31 PM"},
    "hour": [],
}  # fmt: skip


class HttpServer:
    """Records requests at `seen`; `released` lets the slow page go on."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.released = threading.Event()
        owner = self

        class Handler(_Handler):
            server_of = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_of: HttpServer

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server_of.seen.append((self.command, self.path, headers, body))
        page = "page_" + url.path.rpartition("/")[2].replace(".", "_")
        with suppress(BrokenPipeError, ConnectionResetError):
            getattr(self, page, self.page_missing)(query, body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815  # the base class's names

    def _send(self, body: bytes, content_type: str = "text/plain", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": content_type, "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), "application/json", status)

    def page_missing(self, *_: Any) -> None:
        self._send(b"nothing here", status=404)

    def page_page(self, *_: Any) -> None:
        self._send(PAGE.encode(), "text/html; charset=utf-8", set_cookie="session=1")

    def page_latin(self, *_: Any) -> None:
        self._send("<p>café</p>".encode("latin-1"), "text/html; charset=iso-8859-1")

    def page_costly(self, *_: Any) -> None:
        self._send(b"<table>" + b"<tr><td>a<br>b" * 140_000, "text/html")

    def page_punycode(self, *_: Any) -> None:
        self._send(b"-" + b"a0" * 500_000, "text/html; charset=punycode")

    def page_wordy(self, *_: Any) -> None:
        self._send(b"few", link="<" + "x" * 50_000 + ">")

    def page_echo(self, _: Any, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._json({"method": self.command, "headers": headers, "body": body.decode()})

    def page_picture(self, *_: Any) -> None:
        self._send(b"\x89PNG", "image/png")

    def page_redirect(self, query: dict[str, str], _: bytes) -> None:
        self._send(b"", status=302, location=query["to"])

    def page_round(self, *_: Any) -> None:
        self._send(b"", status=302, location="/round")

    def page_endless(self, *_: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.end_headers()
        while True:
            self.wfile.write(b"x" * 65536)

    def page_slow(self, *_: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.end_headers()
        self.wfile.write(b"a")
        self.wfile.flush()
        self.server_of.released.wait(60)

    def page_zipped(self, *_: Any) -> None:
        self._send(gzip.compress(b"unzipped"), content_encoding="gzip")

    def page_bomb(self, *_: Any) -> None:
        compressor = zlib.compressobj(9, wbits=31)
        bomb = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(200)) + compressor.flush()
        self._send(bomb, content_encoding="gzip")

    def page_half_zipped(self, *_: Any) -> None:
        self._send(gzip.compress(b"unzipped")[:-12], content_encoding="gzip")

    def page_brotli(self, *_: Any) -> None:
        self._send(b"...", content_encoding="br")

    def page_current_json(self, query: dict[str, str], _: bytes) -> None:
        if query.get("key") != "weather-key":
            self._json({"error": {"code": 2006, "message": f"API key {query.get('key')} is invalid."}}, 401)
        elif query["q"] == "Nowhere":
            self._json({"error": {"code": 1006, "message": "No matching location found."}}, 400)
        elif query["q"] == "strange":
            self._json({"location": PLACE})
        else:
            self._json({"location": PLACE, "current": CURRENT})

    def page_forecast_json(self, query: dict[str, str], _: bytes) -> None:
        days = [DAY] * int(query["days"])
        self._json({"location": PLACE, "current": CURRENT, "forecast": {"forecastday": days}})

    def page_translate(self, _: Any, body: bytes) -> None:
        given = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        text = given["appid"] + given["q"] + given["salt"] + "translate-key"
        if hashlib.md5(text.encode()).hexdigest() != given["sign"]:
            self._json({"error_code": "54001", "error_msg": "Invalid Sign"})
            return
        lines = [{"src": line, "dst": f"«{line}»"} for line in given["q"].splitlines()]
        self._json({"from": "en", "to": given["to"], "trans_result": lines})
