"""The file as a whole: it stands alone, and cannot be made to run what a kernel says."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from dotcu.inspection.html import Page, render
from html_pages import page_of, scale, source_file


def test_page_loads_nothing() -> None:
    text = render(page_of())
    assert "default-src 'none'" in text
    assert not re.search(
        r"https?://|<link(?! rel=\"icon\" href=\"data:,\")|\bsrc=|@import|url\(|\bfetch\(", text
    )


def test_policy_allows_the_one_script_that_is_there() -> None:
    text = render(page_of())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert re.findall(r"(\S+) 'unsafe-inline'", text) == ["style-src"]


def test_no_text_of_a_page_can_open_or_end_an_element() -> None:
    evil = "</script></title><script>x</script><img src=x onerror=x>"
    hostile = scale(name=evil, source=(source_file(evil, name=evil),), failure=evil, missing={"ptx": evil})
    text = render(page_of(hostile, title=evil))
    assert evil not in text
    assert len(re.findall("<script", text)) == len(re.findall("<script", render(page_of())))


def test_slot_in_a_kernels_text_is_not_filled() -> None:
    text = render(page_of(scale(source=(source_file("{{script}} {{title}}"),))))
    assert "{{script}} {{title}}" in text


def test_every_slot_of_the_template_is_filled() -> None:
    assert "{{" not in render(page_of())


def test_page_without_kernels_is_refused() -> None:
    with pytest.raises(ValueError, match="got none, for 'nothing'"):
        render(Page(title="nothing", kernels=()))
