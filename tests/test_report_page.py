"""The HTML report: complete, self-contained, sound, and in a real browser neither cut off nor asking the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from llmcalc.efficiency import Efficiency
from llmcalc.estimation import Estimate, estimate_request
from llmcalc.report.layout import duration, rate
from llmcalc.report.page import page
from llmcalc.request import resolve

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "/usr/bin/chromium", "google-chrome"))), None)
COMMAND = "llmcalc report --gpu rtx4090 -m 'a <b> & c' -o report.html"
VOID = {"meta", "br", "hr", "img", "link", "input"}
PHONE = 375  # CSS pixels


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    request = resolve(gpu="rtx4090", model="llama3.1-8b", quant="q4", ctx="32k")
    return estimate_request(request, Efficiency())


@pytest.fixture(scope="module")
def html(estimate: Estimate) -> str:
    return page(estimate, COMMAND, Efficiency())


class Elements(HTMLParser):
    """Checks that elements nest, and collects attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def parsed(html: str) -> Elements:
    elements = Elements()
    elements.feed(html)
    assert elements.open == []
    return elements


def test_needs_neither_network_nor_scripts(html: str, parsed: Elements) -> None:
    assert not parsed.tags.keys() & {"script", "link", "img", "iframe", "object", "embed"}
    for tag, name, value in parsed.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith("#"), (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", html)


def test_says_what_the_estimate_says(estimate: Estimate, parsed: Elements) -> None:
    text = " ".join(parsed.text)
    for figure in (
        rate(estimate.decode[1].tokens_per_s),
        rate(estimate.prefill[0].tokens_per_s),
        duration(estimate.latency.ttft_s),
        duration(estimate.latency.end_to_end_s),
        "Llama 3.1 8B · Q4_K_M · GeForce RTX 4090 (CUDA)",
        *estimate.basis,
        *estimate.notes,
        *estimate.check_command.split("; "),
    ):
        assert figure in text
    for time in (estimate.prefill_time.main, estimate.decode_time.main):
        for operation in time.operations:
            assert operation.name in text


def test_what_was_typed_is_shown_and_not_obeyed(html: str, parsed: Elements) -> None:
    assert "a <b> & c" not in html
    assert COMMAND in " ".join(parsed.text)


def test_charts_are_sound_svg_with_ids_of_their_own(html: str, parsed: Elements) -> None:
    charts = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(charts) == 6
    for chart in charts:
        ElementTree.fromstring(chart)
        assert unescape(re.search(r'aria-label="([^"]+)"', chart)[1])  # type: ignore[index]
        assert "<text" in chart
    ids = [value for _, name, value in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:url\(|href=")#([\w.-]+)', html):
        assert target in ids


def test_charts_take_the_colours_of_the_page(html: str) -> None:
    svg = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "var(--ink)" in svg
    assert not re.search(r"#(1a1a1a|ffffff|d9d9d9)\b", svg)


def test_the_same_estimate_gives_the_same_page(estimate: Estimate, html: str) -> None:
    assert page(estimate, COMMAND, Efficiency()) == html


def test_is_small_enough_to_send(html: str) -> None:
    assert len(html.encode()) < 400_000


def test_what_does_not_fit_is_said() -> None:
    request = resolve(gpu="rtx3060", model="llama3-70b", quant="q4", ctx="8k")
    text = page(estimate_request(request, Efficiency()), None, Efficiency())
    assert '<b class="bad">does not fit</b>' in text


def browse(document: str, folder: Path) -> str:
    """The document after a headless browser without network laid it out and ran the test's script."""
    path = folder / "page.html"
    path.write_text(document, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run",
        "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=folder)
    return done.stdout


MEASURE = """
<iframe id="phone" style="width: %dpx; height: 700px; border: 0"></iframe><pre id="found"></pre>
<script>
const frame = document.getElementById("phone");
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const beyond = [...page.querySelectorAll("h1, h2, p, li, .card, figure svg, summary")]
    .filter(one => one.getBoundingClientRect().right > root.clientWidth + 1).map(one => one.tagName);
  const sizes = [...page.querySelectorAll("figure svg text")].map(one => one.getBoundingClientRect().height);
  const loaded = frame.contentWindow.performance.getEntriesByType("resource").length;
  document.getElementById("found").textContent = JSON.stringify({
    scroll: root.scrollWidth, width: root.clientWidth, beyond, charts: page.querySelectorAll("svg").length,
    smallest: Math.min(...sizes), loaded});
};
frame.srcdoc = %s;
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_phone_shows_all_of_it_in_letters_that_can_be_read(html: str, tmp_path: Path) -> None:
    import json

    source = json.dumps(html).replace("</", "<\\/")
    seen = browse(f"<!DOCTYPE html><body>{MEASURE % (PHONE, source)}", tmp_path)
    found = json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', seen, re.DOTALL)[1]))  # type: ignore[index]
    assert found["width"] <= PHONE
    assert found["scroll"] <= found["width"]
    assert found["beyond"] == []
    assert found["charts"] == 6
    assert found["smallest"] >= 8
    assert found["loaded"] == 0
