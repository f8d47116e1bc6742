# SPDX-License-Identifier: BSD-2-Clause
"""The page of a trace, in a real browser."""

import html
import struct
import zlib

import numpy as np
import pytest

from peerdma.trace.page import page
from peerdma.trace.story import Counter, Row, Span, Story
from peerdma.trace.tlp import Tlp
from tests.host.trace.browser import READY, Browser

#: TLPs of the large page.
MANY = 100_000
#: No picture needs more shapes than this, however many TLPs there are.
MOST_SHAPES = 8000


def story(count: int) -> Story:
    """Reads of a GPU, their data, and writes to the host, in turn, 100 ns apart."""
    rows = []
    for number in range(count):
        kind = ("MRd", "CplD", "MWr")[number % 3]
        tlp = Tlp(kind, 128, address=0x1000 + number, tag=number % 16, payload=bytes(range(64)))
        party, up = ("host", True) if kind == "MWr" else ("GPU", kind == "MRd")
        mate = {0: number + 1, 1: number - 1, 2: -1}[number % 3]
        label = f"{kind} number {number} <b>"
        rows.append(Row(100 * number, up, party, tlp, b"", label, mate=min(mate, count - 1)))
    rows[4].notes = ("dropped: nobody is there",)
    end = 100 * count
    spans = [Span("H2C 0", at, at + 900, f"descriptor {at}") for at in range(0, end, 1000)]
    counter = Counter("buffers", 30, list(range(0, end, 100)), [n % 31 for n in range(count)])
    return Story(rows, spans, [counter])


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def opened(browser, tmp_path):
    """``opened(count, hash)`` is the browser with the page of `story(count)`."""

    def opened(count: int, where: str = "") -> Browser:
        path = tmp_path / f"{count}.html"
        path.write_text(page(story(count), "a <title>"), encoding="utf-8")
        browser.open("about:blank")
        browser.open(f"file://{path}{where}")
        browser.wait_for(READY)
        return browser

    return opened


def text(browser: Browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({selector!r}).innerText")


def press(browser: Browser, key: str, shift: bool = False) -> None:
    """Presses a key as a keyboard does, with all that the browser itself makes of it."""
    code = {"Enter": 13, "Escape": 27, "/": 191}.get(key) or ord(key.upper())
    said = {"Enter": "\r", "Escape": ""}.get(key, key)
    about = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
    browser.ask(
        "Input.dispatchKeyEvent", type="keyDown", **about, **({"text": said} if said else {})
    )
    browser.ask("Input.dispatchKeyEvent", type="keyUp", **about)


def labels(browser: Browser) -> list[list]:
    """What is written between host, card and GPU: text, left, right, and where its middle is."""
    return browser.evaluate("""{
        const found = [], plain = CanvasRenderingContext2D.prototype.fillText;
        const place = layout(document.getElementById('canvas').clientWidth);
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            const half = this.measureText(text).width / 2;
            if (y > TOP && place.left < x && x < place.right)
                found.push([text, x - half, x + half, y]);
            plain.call(this, text, x, y); };
        draw(); CanvasRenderingContext2D.prototype.fillText = plain; found }""")


def test_it_counts_and_asks_for_nothing(opened):
    browser = opened(300)
    browser.asked.clear()
    assert text(browser, "#count") == "300 TLPs in 29.90 µs"
    assert text(browser, "h1") == "a <title>" == browser.evaluate("document.title")
    browser.evaluate("fit(); draw(); show(7)")
    assert [url for url in browser.asked if not url.startswith("file:")] == []
    assert browser.said == []


def test_it_works_inside_another_page(browser, tmp_path):
    """As in a notebook, where it has no address that could keep what is seen."""
    path = tmp_path / "outer.html"
    inner = html.escape(page(story(300), "inside"))
    path.write_text(f'<iframe width="900" height="600" srcdoc="{inner}"></iframe>')
    browser.open(f"file://{path}")
    browser.wait_for("!!frames[0]?.document.getElementById('count')?.value")
    browser.evaluate("""new Promise((done) => {
        frames[0].dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
        frames[0].requestAnimationFrame(() => setTimeout(done)); })""")
    assert browser.said == []


def test_search_finds_and_steps(opened):
    browser = opened(300)
    browser.evaluate("""
        document.getElementById('search').value = 'mwr number 2';
        document.getElementById('search').dispatchEvent(new Event('input'))""")
    rows = [n for n in range(300) if n % 3 == 2 and str(n).startswith("2")]
    # "number 2" is in the words, in any order.
    found = [n for n in range(300) if n % 3 == 2 and "2" in f"{n} {0x1000 + n:#x} 128 {n % 16}"]
    assert text(browser, "#found") == f"{len(found)} found" and set(rows) <= set(found)
    browser.evaluate("document.getElementById('next').click()")
    assert browser.evaluate("state.row") == found[0]
    browser.evaluate("document.getElementById('next').click()")
    assert browser.evaluate("state.row") == found[1]
    browser.evaluate("document.getElementById('previous').click()")
    assert browser.evaluate("state.row") == found[0]


def test_keys_of_the_search_field(opened):
    """In the field, Enter steps and letters are text; Escape leaves it, and letters step."""
    browser = opened(300)
    browser.evaluate("document.getElementById('canvas').focus()")
    for key, shift, focus, query, row in (
        ("/", False, "search", "", -1),
        ("m", False, "search", "m", -1),
        ("w", False, "search", "mw", -1),
        ("Enter", False, "search", "mw", 2),
        ("Enter", False, "search", "mw", 5),
        ("Enter", True, "search", "mw", 2),
        ("Escape", False, "canvas", "mw", 2),
        ("n", False, "canvas", "mw", 5),
        ("p", False, "canvas", "mw", 2),
        ("Escape", False, "canvas", "mw", -1),
    ):
        press(browser, key, shift)
        field = "document.getElementById('search').value"
        seen = browser.evaluate(f"[document.activeElement.id, {field}, state.query, state.row]")
        assert seen == [focus, query, query, row], key


def test_the_panel_describes_the_selected_one(opened):
    browser = opened(300)
    browser.evaluate("show(4)")
    panel = text(browser, "#panel")
    assert "CplD number 4 <b>" in panel and "dropped: nobody is there" in panel
    assert "GPU to card" in panel and "000  00 01 02 03 04 05 06 07" in panel
    browser.evaluate("[...document.querySelectorAll('#panel button')][0].click()")
    assert browser.evaluate("state.row") == 3


def test_a_filter_hides_a_kind(opened):
    browser = opened(300)
    browser.evaluate("fit(); draw()")
    before = browser.evaluate("state.drawn")
    browser.evaluate("document.querySelector('#filters input[value=MWr]').click(); draw()")
    assert before - browser.evaluate("state.drawn") == 100


def test_its_address_keeps_what_is_shown(opened):
    browser = opened(300, "#from=1000&to=5000&tlp=20&q=mwr&hide=MRd")
    assert browser.evaluate("[state.from, state.to, state.row]") == [1000, 5000, 20]
    assert text(browser, "#found") == "100 found"
    assert browser.evaluate("document.querySelector('#filters input[value=MRd]').checked") is False
    browser.evaluate("zoom(0.5)")
    browser.wait_for("location.hash.includes('from=2000')")
    assert "to=4000" in browser.evaluate("location.hash")


def test_many_open_and_need_no_more_shapes(opened):
    browser = opened(MANY)
    assert text(browser, "#count") == f"{MANY:,} TLPs in 10.000 ms"
    drawn = []
    for part in (1, 0.3, 0.1, 0.01, 0.001):
        browser.evaluate(f"state.from = 0; state.to = trace.end * {part}; draw()")
        drawn.append(browser.evaluate("state.drawn"))
        browser.evaluate("move(0.5); draw()")
        drawn.append(browser.evaluate("state.drawn"))
    assert min(drawn) > 0 and max(drawn) < MOST_SHAPES, drawn
    browser.evaluate("state.query = 'number 99999'; search()")
    assert text(browser, "#found") == "1 found"


def test_the_picture_has_lines_and_arrows_where_they_belong(opened):
    browser = opened(60, "#from=0&to=3000")
    browser.evaluate("draw()")
    places = browser.evaluate("layout(document.getElementById('canvas').clientWidth).x")
    top = browser.evaluate("document.getElementById('canvas').getBoundingClientRect().top")
    picture = pixels(browser.screenshot())
    paper = picture[int(top) + 4, int(places["host"]) + 40]
    ys = slice(int(top) + 60, int(top) + 500)
    for name in ("host", "card", "GPU"):
        line = picture[ys, int(places[name])]
        assert (line != paper).any(axis=1).mean() > 0.95, f"the line of {name} has gaps"
    height = browser.evaluate("document.getElementById('canvas').clientHeight")
    for row, (left, _right) in ((6, ("card", "GPU")), (8, ("host", "card"))):
        y = int(top + 30 + 100 * row / 3000 * (height - 30))
        middle = slice(int(places[left]) + 12, int(places[left]) + 20)
        band = picture[y - 1 : y + 2, middle]
        assert (band != paper).any(), f"no arrow of TLP {row}"


@pytest.mark.parametrize("width", [390, 1440])
def test_labels_do_not_overlap_and_are_whole(opened, width):
    """That of the selected TLP is there however near others are."""
    browser = opened(300, "#from=0&to=6000")
    browser.resize(width, 844)
    try:
        for row in (-1, 0, 17, 31):
            browser.evaluate(f"select({row})")
            found = labels(browser)
            assert len(found) > 5 and all("…" not in each[0] for each in found)
            assert any(f"number {row} " in each[0] for each in found) == (row >= 0)
            room = browser.evaluate("layout(document.getElementById('canvas').clientWidth)")
            top = browser.evaluate("TOP")
            for (_, left, right, y), (*_, after) in zip(found, [*found[1:], found[0]], strict=True):
                assert room["left"] - 1 < left and right < room["right"] + 1
                assert y >= top + 6 and abs(after - y) >= 12
    finally:
        browser.restore()


def test_it_is_for_the_dark_and_for_small_screens(opened):
    browser = opened(300)
    light = pixels(browser.screenshot())
    browser.ask("Emulation.setEmulatedMedia", features=[DARK])
    try:
        browser.evaluate("draw()")
        dark = pixels(browser.screenshot())
        assert light.mean() > 200 and dark.mean() < 80
        browser.resize(390, 800, mobile=True)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
        assert browser.evaluate("document.getElementById('canvas').clientHeight") > 150
        # The curves give their room to host, card and GPU, and the panel does not speak of them.
        places = browser.evaluate("layout(document.getElementById('canvas').clientWidth)")
        host, card, gpu = (places["x"][name] for name in ("host", "card", "GPU"))
        assert places["left"] < host < card - 90 and card + 90 < gpu < places["right"] < 390
        assert not places["curves"] and "curves, which need a wider page" in text(browser, "#panel")
        assert browser.evaluate("layout(1000).curves")
        # So do the bars, of a board with many channels.
        browser.evaluate("trace.tracks = Array(16).fill('C2H 0')")
        places = browser.evaluate("layout(390)")
        host, card, gpu = (places["x"][name] for name in ("host", "card", "GPU"))
        assert host < card - 80 and card + 80 < gpu < 390
    finally:
        browser.ask("Emulation.setEmulatedMedia", features=[])
        browser.restore()


DARK = {"name": "prefers-color-scheme", "value": "dark"}


def pixels(png: bytes) -> np.ndarray:
    """A PNG of 8-bit RGB or RGBA, as rows, columns, and red, green, blue."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, data, width, height, channels = 8, b"", 0, 0, 0
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    lines = np.zeros((height + 1, width * channels), np.uint8)
    for y, (way, line) in enumerate(zip(raw[:, 0], raw[:, 1:], strict=True), start=1):
        lines[y] = _unfiltered(int(way), line, lines[y - 1], channels)
    return lines[1:].reshape(height, width, channels)[:, :, :3]


def _unfiltered(way: int, line: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    """A line of a PNG without its filter (PNG specification, chapter 9)."""
    if way == 0:
        return line
    if way == 2:
        return line + above
    out = [0] * step + line.tolist()
    up = [0] * step + above.tolist()
    for x in range(step, len(out)):
        a, b, c = out[x - step], up[x], up[x - step]
        if way == 1:
            guess = a
        elif way == 3:
            guess = (a + b) // 2
        else:
            guess = min((a, b, c), key=lambda v: abs(a + b - c - v))
        out[x] = (out[x] + guess) & 0xFF
    return np.array(out[step:], np.uint8)
