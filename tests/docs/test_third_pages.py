"""What the pages say works as they say it: one third of them, since files are what test processes share out."""

import pytest

from tests.docs.all_pages import PAGES, steps_of


@pytest.mark.timeout(600)  # some steps are half a dozen commands, each of which starts workers
@steps_of(PAGES[2::3])
def test_a_page_does_what_it_says(reader, page, step):
    reader.does(step)
