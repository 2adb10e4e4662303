"""Every page is read, and what its reader leaves out is really there."""

import pytest

from tests.docs.all_pages import PAGES
from tests.docs.pages import ROOT, Page, Reader


def test_every_page_is_read():
    saying_how = {path for path in (*ROOT.glob("docs/*.md"), ROOT / "README.md") if Page(str(path)).steps}
    assert saying_how == {ROOT / page.path for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_what_is_left_out_is_on_the_page(page):
    for start, reason in page.unrun.items():
        assert any(text.startswith(start) for step in page.steps for text in (step.text, *step.typed)), (start, reason)


def test_a_shown_output_that_differs_is_noticed(tmp_path):
    reader = _reader_of(tmp_path, "```console\n$ echo 1 2 3\n1 … 4\n```\n")
    with pytest.raises(AssertionError, match="the page shows"):
        reader.does(reader.page.steps[0])


def test_a_script_that_fails_is_noticed(tmp_path):
    reader = _reader_of(tmp_path, "```python\nassert 1 == 2\n```\n")
    with pytest.raises(AssertionError, match="1 == 2"):
        reader.does(reader.page.steps[0])


def test_a_script_sees_nothing_of_the_environment_of_the_tests(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    script = 'import os\n\nprint(sorted(set(os.environ) - {"LC_CTYPE"}))'
    reader = _reader_of(tmp_path, f"```python\n{script}\n```\n\n```text\n['HOME', 'PATH']\n```\n")
    reader.does(reader.page.steps[0])


def _reader_of(folder, text):
    (folder / "page.md").write_text(text)
    return Reader(Page(str(folder / "page.md")), folder)
