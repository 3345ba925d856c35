"""The page in a real browser: what a click, a key, the search and the address do."""

from __future__ import annotations

import re

import pytest

from helpers.html_reports import CALL, END, LINE, SOURCE, InBrowser, page_with, row, scale


def test_click_on_a_source_line_marks_what_it_became(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """all("#source .r")[3].click();
        return [marks(), labels("#ptx .inlined"), labels("#sass .inlined"), texts("#status span")];""",
    )
    marked, ptx_inlined, sass_inlined, status = got
    assert marked == {"source": ["4"], "ptx": ["20", "24"], "sass": ["0000", "0020"]}
    assert (ptx_inlined, sass_inlined) == (["22"], ["0010"])
    assert "scale.cu:4" in status
    assert "thread instructions 12,800 (99.8 %)" in status
    assert "2 SASS + 1 inlined" in status


def test_click_on_an_instruction_marks_its_line_and_the_call_around_it(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """all("#sass .r")[2].click();
        return [marks(), labels("#source .inlined"), labels(".cursor"), texts("#status .place"),
                location.hash];""",
    )
    marked, around, cursor, places, address = got
    assert marked == {"source": ["2"], "ptx": ["22"], "sass": ["0010"]}
    assert (around, cursor, places) == (["4"], ["0010"], ["scale.cu:2", "scale.cu:4"])
    assert address == "#file=scale.cu&line=2"


def test_address_chooses_a_line_under_the_pages_own_policy(document_of: InBrowser) -> None:
    document = document_of(page_with(), "line=5")
    rows = re.findall(r'<div class="r marked[^"]*" data-n="(\w+)"', document)
    assert rows == ["5", "26", "0030"]


def test_marked_lines_far_away_come_into_view(in_browser: InBrowser) -> None:
    filler = tuple(row("NOP", f"{16 * n:04x}", LINE) for n in range(10_000))
    wanted = row("EXIT", "wanted", CALL)
    got = in_browser(
        page_with(scale(sass=(*filler, wanted, *filler))),
        """const started = performance.now();
        all("#source .r")[3].click();
        const row = document.querySelector('#sass [data-n="wanted"]');
        const place = row.getBoundingClientRect(), body = row.closest(".body").getBoundingClientRect();
        const visible = place.top >= body.top && place.bottom <= body.bottom;
        return [visible, all("#sass .r").length, performance.now() - started, place.height];""",
    )
    visible, rows, took_ms, height = got
    assert (visible, rows, height) == (True, 20_001, 19)
    assert took_ms < 1000  # some 60 on two cores


def test_search_walks_the_hits_of_all_panes(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """const query = document.getElementById("query"), seen = [];
        query.value = "GLOBAL"; query.dispatchEvent(new Event("input"));
        seen.push(texts("#hits")[0], labels(".hit"));
        for (let i = 0; i < 4; i++) { press("n"); seen.push(texts("#hits")[0], labels(".here")); }
        press("Escape"); seen.push(texts("#hits")[0], labels(".hit"));
        return seen;""",
    )
    first = ["3", ["3", "20", "24"]]
    walked = ["1 / 3", ["3"], "2 / 3", ["20"], "3 / 3", ["24"], "1 / 3", ["3"]]
    assert got == [*first, *walked, "", []]


def test_keys_move_between_lines_that_became_code(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """const seen = [];
        for (const key of ["j", "j", "j", "j", "k", "l", "l", "Escape"]) {
          press(key);
          seen.push(labels(".cursor")[0] ?? "");
        }
        return seen;""",
    )
    assert got == ["2", "4", "5", "5", "4", "20", "0000", ""]


def test_label_leads_to_where_it_stands(in_browser: InBrowser) -> None:
    got = in_browser(page_with(), 'all("#sass .a")[0].click(); return texts("#sass .cursor");')
    assert got == [".L_x_0:"]


def test_shift_click_chooses_the_lines_between(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """const rows = all("#source .r"); rows[1].click();
        rows[3].dispatchEvent(new MouseEvent("click", {shiftKey: true, bubbles: true}));
        return [marks(), texts("#status .place")[0]];""",
    )
    marked, reported = got
    assert marked["source"] == ["2", "3", "4"]
    assert marked["sass"] == ["0000", "0010", "0020"]
    assert reported == "scale.cu:2 and 2 more"


def test_architectures_keep_the_line_and_a_failed_one_shows_its_message(in_browser: InBrowser) -> None:
    newer = scale("sm_100", sass=(row("LDG.E.128 R0", "0a00", CALL),))
    failed = scale("sm_75", files=(), ptx=(), sass=(), failure="scale.cu(4): error: no <mma>")
    got = in_browser(
        page_with(scale(), newer, failed),
        """all("#source .r")[3].click();
        const press = (n) => all("#archs button")[n].click();
        press(1); const second = [marks(), texts("#archs [aria-pressed=true]")];
        press(2); const third = [texts("#failure")[0], document.getElementById("panes").hidden];
        return [second, third];""",
    )
    assert got[0] == [{"source": ["4"], "ptx": ["20", "24"], "sass": ["0a00"]}, ["sm_100"]]
    assert got[1] == ["scale.cu(4): error: no <mma>", True]


def test_counts_colour_lines_by_the_metric_chosen(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """const select = document.querySelector("#source select");
        return [0, 1, 2].map((index) => {
          select.selectedIndex = index; select.dispatchEvent(new Event("change"));
          return [select.value, texts("#source b"), all("#source b")[3].style.getPropertyValue("--f")];
        });""",
    )
    assert got == [
        ["thread instructions", ["", "32", "", "13k", ""], "1"],
        ["sectors", ["", "", "", "8", ""], "1"],
        ["SASS instructions", ["", "1", "", "2", "1"], "1"],
    ]


def test_facts_and_findings_are_shown_and_a_finding_leads_to_its_line(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """all("#notes li")[0].click();
        return [texts("#facts div"), texts("#rows"), texts("#notes li"), marks().source,
                all("#source .r")[3].dataset.note];""",
    )
    assert got == [
        ["registers8one less changes nothing"],
        ["compiler NVRTC 13.0"],
        ["scale.cu:4loads of 4 bytes"],
        ["4"],
        "loads of 4 bytes",
    ]


@pytest.mark.parametrize("text", ['</script><img src=x onerror="document.title=1">', "/* <b> */ 'a' &lt;"])
def test_source_is_shown_as_it_is_written(in_browser: InBrowser, text: str) -> None:
    kernel = scale(
        name=text,
        ptx=(row(text, text),),
        sass=(row(text, text, control=text),),
    )
    got = in_browser(
        page_with(kernel, title=text, lines=list(enumerate((text, *SOURCE[1:]), 1))),
        """return [texts("#source code")[0], texts("#ptx code")[0], texts("#sass code")[0],
                   texts("#title")[0], all("img").length, document.title];""",
    )
    assert got == [text, text, text, text, 0, text]


def test_pane_without_lines_says_why_or_is_not_there(in_browser: InBrowser) -> None:
    kernel = scale(ptx=(), sass=(), missing={"sass": "Type: pip install 'dotcu[tools]'"})
    got = in_browser(
        page_with(kernel),
        'return [texts("#sass .empty"), document.getElementById("ptx").hidden, texts("#shown button")];',
    )
    assert got == [["Type: pip install 'dotcu[tools]'"], True, ["Source", "SASS"]]


def test_selected_text_is_the_code_alone(in_browser: InBrowser) -> None:
    controlled = row("EXIT", "0030", END, control="B--:S05")
    got = in_browser(
        page_with(scale(sass=(controlled, controlled))),
        """return ["source", "sass"].map((name) => {
          getSelection().selectAllChildren(document.querySelector(`#${name} .chunk`));
          return getSelection().toString().split("\\n").filter((line) => line);
        });""",
    )
    assert got == [list(SOURCE), ["EXIT", "EXIT"]]


def test_hidden_pane_leaves_its_room_and_its_hits(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """const query = document.getElementById("query"), sass = document.getElementById("sass");
        const before = sass.offsetWidth;
        query.value = "global"; query.dispatchEvent(new Event("input"));
        all("#shown button")[1].click();
        return [document.getElementById("ptx").hidden, sass.offsetWidth > before, texts("#hits")[0]];""",
    )
    assert got == [True, True, "1"]


def test_splitter_moves_room_between_its_neighbours(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(),
        """const splitter = all(".splitter")[0], widths = () => all(".pane").map((pane) => pane.offsetWidth);
        splitter.setPointerCapture = () => {};
        const drag = (type, clientX) => splitter.dispatchEvent(new PointerEvent(type, {clientX}));
        const before = widths();
        drag("pointerdown", 500); drag("pointermove", 600); drag("pointerup", 600); drag("pointermove", 700);
        return widths().map((width, index) => Math.round((width - before[index]) / 10));""",
    )
    assert got == [10, -10, 0]


def test_left_out_lines_of_a_file_are_shown_as_a_gap(in_browser: InBrowser) -> None:
    got = in_browser(
        page_with(lines=[(2, SOURCE[1]), (4, SOURCE[3])]),
        'return [labels("#source .r"), texts("#source .gap")];',
    )
    assert got == [["2", "4"], ["⋯"]]


def test_nothing_is_asked_of_a_network(in_browser: InBrowser) -> None:
    asked = 'return performance.getEntriesByType("resource").map(({name}) => name);'
    assert in_browser(page_with(), asked) == []
