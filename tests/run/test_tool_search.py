"""Which tools a query means: words and parts of them, singular or plural, with blanks between words or without."""

import pytest

from toolfleet.orchestrator.tools.tool_search import by_shared_words
from toolfleet.tool import ToolSpec


def spec(name, description="Does it.", *tags):
    return ToolSpec(name=name, description=description, input_schema={"type": "object"}, tags=tags)


TOOLS = [
    spec("read_file", "Read one of them."),
    spec("getWeather", "Say how it is outside."),
    spec("获取天气", "返回一个城市的天气预报"),
    spec("翻译", "把文字翻译成英文"),
    spec("天気予報", "明日の天気を調べます"),
    spec("send_email", "Write to somebody.", "mailbox"),
    spec("run_query", "Ask the database."),
    spec("list_boxes", "Show what is packed."),
    spec("add", "Add two numbers."),
]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("files", "read_file"),
        ("reading a file", "read_file"),
        ("queries", "run_query"),
        ("box", "list_boxes"),
        ("mail", "send_email"),
        ("emails", "send_email"),
        ("weath", "getWeather"),
        ("天气", "获取天气"),
        ("北京天气怎么样", "获取天气"),
        ("翻译成英文", "翻译"),
        ("明日の天気", "天気予報"),
        ("mailboxes", "send_email"),
        ("number", "add"),
    ],
)
def test_a_query_finds_the_tool_that_is_meant(query, first):
    assert by_shared_words(query, TOOLS)[0].name == first


@pytest.mark.parametrize("query", ["zebra", "", "ad", "!!", "鲸"])
def test_what_nothing_is_called_like_finds_nothing(query):
    assert by_shared_words(query, TOOLS) == []


def test_a_whole_word_of_a_name_comes_before_a_part_of_one():
    tools = [spec("reporting_tables"), spec("table"), spec("other", "about a table")]
    assert [each.name for each in by_shared_words("table", tools)] == ["reporting_tables", "table", "other"]
    assert by_shared_words("report", [spec("unreported"), spec("report")])[0].name == "report"
