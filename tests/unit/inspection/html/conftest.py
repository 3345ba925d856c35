"""What the tests of the page share: a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dotcu.inspection.page import render
from helpers.html_reports import InBrowser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# In a page, runs what a test did and leaves its value, as JSON, where the dump of the document shows it.
DRIVER = """<script>
const all = (selector) => [...document.querySelectorAll(selector)];
const texts = (selector) => all(selector).map((element) => element.textContent);
const labels = (selector) => all(selector).filter((row) => row.matches(".r")).map((row) => row.dataset.n);
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const marks = () => Object.fromEntries(
  ["source", "ptx", "sass"].map((name) => [name, labels(`#${name} .marked`)]));
addEventListener("load", () => {
  const result = (() => { %s })();
  document.documentElement.dataset.result = JSON.stringify(result ?? null);
});
</script></body>"""


@pytest.fixture
def in_browser(tmp_path: Path) -> InBrowser:
    """Opens a page, runs a function's body in it and gives its value; a word on the console is a failure."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is here")

    def in_browser(page: dict[str, Any], body: str, fragment: str = "") -> Any:
        text = re.sub("<meta http-equiv=[^>]*>", "", render(page))  # it forbids the driver, too
        document = opened(browser, text.replace("</body>", DRIVER % body), fragment, tmp_path)
        result = re.search(r'<html[^>]* data-result="([^"]*)"', document)
        assert result, "the page ran no driver"
        return json.loads(html.unescape(result[1]))

    return in_browser


@pytest.fixture
def document_of(tmp_path: Path) -> InBrowser:
    """Opens a page as a user would, and gives its document as the browser then has it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is here")
    return lambda page, fragment="": opened(browser, render(page), fragment, tmp_path)


def opened(browser: str, text: str, fragment: str, folder: Path) -> str:
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,700",
        "--timeout=20000",
        "--dump-dom",
    ]
    run = subprocess.run(
        [*command, f"{file.as_uri()}#{fragment}"], capture_output=True, text=True, timeout=120, check=False
    )
    said = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    return run.stdout
