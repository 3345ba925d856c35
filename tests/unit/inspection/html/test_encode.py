"""A page as JSON within HTML: what it says, once, and nothing that could end its element."""

from __future__ import annotations

import json

import pytest

from dotcu.inspection.html import Page
from dotcu.inspection.html.encode import encode
from html_pages import scale, source_file


def test_files_that_kernels_share_are_written_once() -> None:
    page = Page(title="t", kernels=(scale("sm_80"), scale("sm_90")))
    data = json.loads(encode(page))
    assert len(data["files"]) == 1
    assert [kernel["files"] for kernel in data["kernels"]] == [[0], [0]]


def test_files_of_one_name_and_other_text_stay_apart() -> None:
    other = scale("sm_80", source=(source_file("int x;"),))
    data = json.loads(encode(Page(title="t", kernels=(scale(), other))))
    assert [kernel["files"] for kernel in data["kernels"]] == [[0], [1]]
    assert data["files"][1] == {"name": 0, "lines": [[1, "int x;"]]}


def test_place_names_its_file_by_number() -> None:
    data = json.loads(encode(Page(title="t", kernels=(scale(),))))
    (kernel,) = data["kernels"]
    assert data["names"] == ["scale.cu"]
    assert kernel["sass"][2] == ["FADD R5, R0, R0", "0010", ["0:2", "0:4"], ""]
    assert kernel["metrics"][0]["counts"] == {"0:2": 32, "0:4": 12800}


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "&amp;", "\u2028", 'a"\\b\t\x00', "×µ", "𝄞"])
def test_text_comes_back_as_it_was_and_means_nothing_to_html(text: str) -> None:
    encoded = encode(Page(title=text, kernels=(scale(source=(source_file(text),)),)))
    assert json.loads(encoded)["title"] == text
    assert json.loads(encoded)["files"][0]["lines"] == [[1, text]]
    assert not set("<>&\u2028") & set(encoded)


def test_file_name_that_is_no_utf8_can_still_be_written() -> None:
    name = b"k\xff.cu".decode("utf-8", "surrogateescape")
    encoded = encode(Page(title=name, kernels=(scale(),)))
    assert json.loads(encoded.encode("utf-8"))["title"] == "k?.cu"
