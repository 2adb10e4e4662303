"""Weather from WeatherAPI.com: now, and the days to come. Speaks its wire format (current.json, forecast.json).

The key is part of the URL there, so that neither logs nor errors may ever show one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import orjson
from httpx import URL
from pydantic import Field, SecretStr
from typing_extensions import TypedDict

from toolfleet import ToolError, tool
from toolfleet.workers.packs.net.fetch import FetchLimits, Request, fetch
from toolfleet.workers.packs.pack_settings import PackSettings, Seconds, for_pack, read_pack_settings


class WeatherSettings(PackSettings):
    """Whom to ask, and with which key."""

    model_config = for_pack("weather")

    key: SecretStr
    """The API key. Required."""

    base_url: str = "https://api.weatherapi.com/v1"
    """Where the API is."""

    language: str = ""
    """The language of the conditions, such as "de"; English if empty."""

    timeout_s: Seconds = 15.0
    """How long the service may take."""

    max_bytes: Annotated[int, Field(ge=1024)] = 1024 * 1024
    """How much of an answer is read; a forecast of 14 days has about 300 KB."""

    max_days: Annotated[int, Field(ge=1, le=14)] = 14
    """How far a forecast may go; the plan of the key may allow less."""


class WeatherPlace(TypedDict):
    """Where it is, as the service understood the question."""

    name: str
    region: str
    country: str
    local_time: str


class Now(TypedDict):
    """The weather at a place now."""

    place: WeatherPlace
    condition: str
    temperature_c: float
    feels_like_c: float
    humidity_percent: float
    wind_kph: float
    wind_direction: str
    pressure_mb: float
    precipitation_mm: float
    cloud_percent: float
    uv_index: float
    updated: str


class Day(TypedDict):
    """The weather of one day."""

    date: str
    condition: str
    min_c: float
    max_c: float
    average_c: float
    max_wind_kph: float
    precipitation_mm: float
    chance_of_rain_percent: float
    chance_of_snow_percent: float
    sunrise: str
    sunset: str


class Forecast(TypedDict):
    """The days to come at a place."""

    place: WeatherPlace
    days: list[Day]


class Weather:
    """Asks one service."""

    def __init__(self, settings: WeatherSettings) -> None:
        self._settings = settings

    @tool(read_only=True)
    async def weather_now(self, place: str) -> Now:
        """Tell the weather at a place now.

        Args:
            place: a city, a postal code, or "latitude,longitude"
        """
        answer = await self._ask("current.json", place)
        with _understanding():
            return _now(answer)

    @tool(read_only=True)
    async def weather_forecast(self, place: str, days: Annotated[int, Field(ge=1, le=14)] = 3) -> Forecast:
        """Forecast the weather of the next days, today included.

        Args:
            place: a city, a postal code, or "latitude,longitude"
            days: how many
        """
        if days > self._settings.max_days:
            raise ToolError(f"at most {self._settings.max_days} days can be asked for")
        answer = await self._ask("forecast.json", place, days=str(days))
        with _understanding():
            return Forecast(place=_place(answer), days=[_day(day) for day in answer["forecast"]["forecastday"]])

    async def _ask(self, path: str, place: str, **options: str) -> Any:
        settings = self._settings
        if not place.strip():
            raise ToolError("a place is needed")
        query = {"key": settings.key.get_secret_value(), "q": place, "aqi": "no", **options}
        if settings.language:
            query["lang"] = settings.language
        url = str(URL(f"{settings.base_url.rstrip('/')}/{path}", params=query))
        fetched = await fetch(Request("GET", url), FetchLimits(settings.timeout_s, settings.max_bytes), gate=None)
        if fetched.cut:
            raise ToolError("the weather service answered more than can be read")
        try:
            answer = orjson.loads(fetched.body)
        except ValueError:
            raise ToolError(f"the weather service answered with status {fetched.status} and no JSON") from None
        if fetched.status != 200:
            raise ToolError(f"the weather service refused: {self._complaint(answer)}")
        return answer

    def _complaint(self, answer: Any) -> str:
        """What the service says, should it quote the key, without it."""
        error = answer.get("error", {}) if isinstance(answer, dict) else {}
        message = str(error.get("message", "it does not say why")) if isinstance(error, dict) else "unknown"
        return message[:300].replace(self._settings.key.get_secret_value(), "…")


@contextmanager
def _understanding() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError):
        raise ToolError("the weather service answered in a form that is not known") from None


def _place(answer: Any) -> WeatherPlace:
    where = answer["location"]
    return WeatherPlace(
        name=where["name"], region=where["region"], country=where["country"], local_time=where["localtime"]
    )


def _now(answer: Any) -> Now:
    now = answer["current"]
    return Now(
        place=_place(answer),
        condition=now["condition"]["text"],
        temperature_c=now["temp_c"],
        feels_like_c=now["feelslike_c"],
        humidity_percent=now["humidity"],
        wind_kph=now["wind_kph"],
        wind_direction=now["wind_dir"],
        pressure_mb=now["pressure_mb"],
        precipitation_mm=now["precip_mm"],
        cloud_percent=now["cloud"],
        uv_index=now["uv"],
        updated=now["last_updated"],
    )


def _day(entry: Any) -> Day:
    day = entry["day"]
    return Day(
        date=entry["date"],
        condition=day["condition"]["text"],
        min_c=day["mintemp_c"],
        max_c=day["maxtemp_c"],
        average_c=day["avgtemp_c"],
        max_wind_kph=day["maxwind_kph"],
        precipitation_mm=day["totalprecip_mm"],
        chance_of_rain_percent=day["daily_chance_of_rain"],
        chance_of_snow_percent=day["daily_chance_of_snow"],
        sunrise=entry["astro"]["sunrise"],
        sunset=entry["astro"]["sunset"],
    )


_weather = Weather(read_pack_settings(WeatherSettings))
weather_now, weather_forecast = _weather.weather_now, _weather.weather_forecast
