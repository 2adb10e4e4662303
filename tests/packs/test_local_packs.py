"""Calculator, clock, files and SQL: what they answer, and what they refuse."""

import os
import sqlite3
import sysconfig

import psutil
import pytest

from toolfleet import Context, ToolError
from toolfleet.workers.packs.calculator import Calculator, CalculatorSettings
from toolfleet.workers.packs.clock import Clock, ClockSettings
from toolfleet.workers.packs.files import Files, FilesSettings
from toolfleet.workers.packs.sql import Sql, SqlSettings
from toolfleet.workers.packs.stdlib import analyse_module

calculator = Calculator(CalculatorSettings())
clock = Clock(ClockSettings())


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", 0.3), ("2 ** 100", 2**100), ("7 // 2", 3), ("-7 % 3", 2), ("log(8, 2)", 3.0),
        ("2 * -pi", -6.28318530717959),
        ("max(1, 2.5, 2)", 2.5), ("comb(52, 5)", 2598960), ("round(2.567, 1)", 2.6), ("(-1) ** (10**100)", 1),
    ],
)  # fmt: skip
async def test_arithmetic_is_calculated(expression, result):
    assert await calculator.calculate(expression) == result


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("9**9**9", "more than 1000 digits"), ("factorial(10**6)", "more than 1000 digits"),
        ("10**400 * 1.5", "too large"),
        ("perm(10**6, 10**6)", "more than 1000 digits"), ("round(5, -10**15)", "up to 30"), ("1/0", "division by zero"),
        ("(-8) ** 0.5", "not a real number"), ("__import__('os')", "unknown"), ("().__class__", "not arithmetic"),
        ("[x for x in (1,)]", "not arithmetic"), ("2 ^ 3", "written"), ("1 +", "not an arithmetic expression"),
        ("'a' * 9", "not arithmetic"), ("-" * 900 + "1", "nested"), ("1" * 2000, "2000 characters"),
        ("sqrt(-1)", "cannot be"),
        ("gcd(1.5, 2)", "cannot be calculated"), ("True + 1", "not arithmetic"), ("\0", "not an arithmetic expression"),
    ],
)  # fmt: skip
async def test_what_is_too_costly_or_no_arithmetic_is_refused(expression, complaint):
    with pytest.raises(ToolError, match=complaint):
        await calculator.calculate(expression)


async def test_time_is_told_in_the_zone_that_was_asked_for():
    assert (await clock.current_time())["utc_offset"] == "+0000"
    assert (await clock.current_time("Asia/Kolkata"))["utc_offset"] == "+0530"
    with pytest.raises(ToolError, match=r"did you mean .*Europe/Berlin"):
        await clock.current_time("Europe/Berlim")
    with pytest.raises(ToolError, match="no timezone"):
        await clock.current_time("../../etc/passwd")


async def test_days_keep_the_time_on_the_clock_and_hours_are_exact():
    before = "2025-03-29T12:00"
    day = await clock.date_add(before, days=1, timezone="Europe/Berlin")
    hours = await clock.date_add(before, hours=24, timezone="Europe/Berlin")
    assert day["iso"] == "2025-03-30T12:00:00+02:00"
    assert hours["iso"] == "2025-03-30T13:00:00+02:00"
    assert (await clock.date_add("2025-12-31", months=-10))["iso"] == "2025-02-28T00:00:00+00:00"
    for too_far in ({"years": 9000}, {"days": 10**9}, {"hours": 1e300}):
        with pytest.raises(ToolError, match="no such date"):
            await clock.date_add("2025-01-01", **too_far)


async def test_the_difference_of_two_dates_counts_the_change_of_the_clocks():
    difference = await clock.date_difference("2025-03-30", "2025-03-31", "Europe/Berlin")
    assert (difference["seconds"], difference["calendar_days"]) == (23 * 3600, 1)
    with pytest.raises(ToolError, match="'soon' is not a date"):
        await clock.date_difference("soon", "2025-01-01")


# --- files ------------------------------------------------------------------------------------------------------------

CONTEXT = Context(call_id="r.1.0", run_id="r", tool="f", deadline_unix_s=0)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("alpha\nbeta é\n")
    (folder / "sub" / "b.py").write_text("Beta")
    (tmp_path / "secret.txt").write_text("secret beta")
    (folder / "out").symlink_to(tmp_path)
    (folder / "out.txt").symlink_to("../secret.txt")
    (folder / "in").symlink_to("sub")
    (folder / "in_absolute").symlink_to(folder / "a.txt")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "binary").write_bytes(b"beta\0")
    return folder


def files(root, **settings):
    return Files(FilesSettings(root=root, **settings))


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "/etc/passwd", "sub/../../secret.txt", "out/secret.txt", "out.txt", "in/../../secret.txt", "loop",
     "pipe", "a\0b", "sub", "nothing", "binary", "out/../root/a.txt"],
)  # fmt: skip
def test_no_path_leads_out_of_the_root_or_to_what_is_no_text_file(root, path):
    with pytest.raises(ToolError) as refused:
        files(root).read_file(path)
    assert str(root.parent) not in str(refused.value)


@pytest.mark.parametrize("path", ["a.txt", "./sub/../a.txt", "in_absolute", "in/../a.txt"])
def test_links_inside_the_root_are_followed(root, path):
    assert files(root).read_file(path)["text"] == "alpha\nbeta é\n"


def test_a_file_is_read_in_pages_that_cut_no_character(root):
    (root / "long").write_text("é" * 1500)
    tool, text, offset = files(root, max_read_bytes=1025), "", 0
    while offset is not None:
        page = tool.read_file("long", offset)
        text, offset = text + page["text"], page["next_offset"]
    assert text == "é" * 1500


def test_a_search_finds_lines_and_follows_no_link(root):
    search = files(root).search_files
    assert [(hit["path"], hit["line"]) for hit in search("beta", CONTEXT)["hits"]] == [("a.txt", 2)]
    found = search("beta", CONTEXT, path="sub", name="*.py", ignore_case=True)
    assert found == {"hits": [{"path": "sub/b.py", "line": 1, "text": "Beta"}], "cut": False}
    assert files(root, max_entries=1).search_files("a", CONTEXT)["cut"] is True


def test_a_listing_tells_kinds_and_sizes_and_is_cut(root):
    entries = {entry["name"]: entry for entry in files(root).list_files()["entries"]}
    assert entries["a.txt"] == {"name": "a.txt", "kind": "file", "size_bytes": 14}
    assert [entries[name]["kind"] for name in ("sub", "out", "pipe")] == ["folder", "link", "other"]
    assert files(root, max_entries=2).list_files()["cut"] is True
    with pytest.raises(ToolError, match="not a folder"):
        files(root).list_files("a.txt")


def test_nothing_is_written_unless_a_setting_allows_it(root):
    with pytest.raises(ToolError, match="nothing may be written"):
        files(root).write_file("new", "x")
    tool = files(root, writable=True, max_write_bytes=10)
    assert tool.write_file("sub/new", "x") == "wrote 1 bytes"
    with pytest.raises(ToolError, match="File exists"):
        tool.write_file("sub/new", "y")
    tool.write_file("sub/new", "é", "replace")
    tool.write_file("sub/new", "z", "append")
    assert (root / "sub" / "new").read_text() == "éz"
    assert sorted(each.name for each in (root / "sub").iterdir()) == ["b.py", "new"]
    with pytest.raises(ToolError, match="at most 10"):
        tool.write_file("sub/new", "x" * 11, "replace")


@pytest.mark.parametrize("how", ["refuse", "replace", "append"])
@pytest.mark.parametrize("path", ["out/new", "../new", "out.txt", "sub", "pipe", "."])
def test_nothing_is_written_outside_of_the_root_or_over_what_is_no_file(root, path, how):
    with pytest.raises(ToolError):
        files(root, writable=True).write_file(path, "x", how)
    assert (root.parent / "secret.txt").read_text() == "secret beta"
    assert not (root.parent / "new").exists()


# --- the standard library ---------------------------------------------------------------------------------------------


def test_only_modules_of_the_standard_library_are_read(tmp_path):
    (tmp_path / "secret.py").write_text("def f(): pass\n")
    assert analyse_module("json")["functions"] > 5
    outside = os.path.relpath(tmp_path / "secret", sysconfig.get_path("stdlib"))
    for name in (outside, str(tmp_path / "secret"), "../../site-packages", "json/decoder", "", ".", "pytest"):
        with pytest.raises(ToolError, match="no source of a module"):
            analyse_module(name)


# --- SQL --------------------------------------------------------------------------------------------------------------


def sql(database, **settings):
    return Sql(SqlSettings(url=f"sqlite:///{database}", **settings))


async def test_rows_are_objects_and_limited(database):
    rows = await sql(database, max_rows=2).sql_query("SELECT * FROM sold ORDER BY id -- all")
    assert rows["cut"] is True
    assert rows["rows"][1] == {"id": 1, "what": "thing 1", "price": 0.25, "picture": "00ff"}
    assert (await sql(database, max_bytes=1024).sql_query("SELECT what FROM sold"))["cut"] is True


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO sold VALUES (1000, 'x', 1, NULL)", "DROP TABLE sold", "CREATE TEMP TABLE x (y)",
        "VACUUM INTO 'copy.db'",
        "ATTACH DATABASE 'copy.db' AS copy", "PRAGMA journal_mode = WAL", "PRAGMA table_info(sold)",
        "SELECT 1; DROP TABLE sold",
        "SELECT load_extension('x')", "SELECT zeroblob(100000000)", "nonsense", "",
        "WITH x AS (SELECT 1) DELETE FROM sold", "BEGIN", "SELECT * FROM nothing", "EXPLAIN DELETE FROM sold",
    ],
)  # fmt: skip
async def test_sqlite_is_only_read(database, query):
    with pytest.raises(ToolError):
        await sql(database).sql_query(query)
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM sold").fetchone() == (500,)
    connection.close()
    assert [each.name for each in database.parent.iterdir()] == [database.name]


async def test_an_endless_query_is_stopped(database):
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with pytest.raises(ToolError, match=r"took longer than 0\.2 s"):
        await sql(database, timeout_s=0.2).sql_query(endless)


async def test_a_query_that_spends_its_time_within_one_instruction_is_stopped_too(database):
    """SQLite looks at the clock between instructions only, each ten thousand of them."""
    search = "instr(hex(zeroblob(120000)), hex(zeroblob(60000)) || '1')"
    within_one = "SELECT " + " + ".join([search] * 50)
    with pytest.raises(ToolError, match=r"took longer than 0\.2 s"):
        await sql(database, timeout_s=0.2).sql_query(within_one)
    assert not [child for child in psutil.Process().children() if child.cpu_percent(0.2) > 50]


async def test_the_schema_lists_tables_and_views(database):
    cheap, sold = await sql(database).sql_schema()
    assert (cheap["name"], cheap["kind"]) == ("cheap", "view")
    assert sold["columns"][:2] == [
        {"name": "id", "type": "INTEGER", "nullable": True, "key": True},
        {"name": "what", "type": "TEXT", "nullable": False, "key": False},
    ]
    assert (await sql(database).sql_schema("sold")) == [sold]
    with pytest.raises(ToolError, match="no table 'gone'"):
        await sql(database).sql_schema("gone")


async def test_a_database_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(ToolError, match="unable to open"):
        await sql(tmp_path / "new.db").sql_query("SELECT 1")
    assert not (tmp_path / "new.db").exists()
