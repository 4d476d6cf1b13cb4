# SPDX-License-Identifier: Apache-2.0
"""The page of thalweg report: everything escaped, nothing fetched, and in a real browser without errors."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess

import pytest

for needed in ("typer", "jsonschema", "jinja2", "matplotlib"):
    pytest.importorskip(needed)

from report_fixtures import EXPECTED, report  # noqa: E402
from thalweg._report import compare, content, document, findings, page, quantities, topology  # noqa: E402

HOSTILE = (
    "\"'><script>alert(1)</script><img src=http://h.invalid/x onerror=alert(2)>{{7*7}}{% raw %}</style><svg onload=alert(3)>"
)
VOID = {"meta", "link", "br", "img"}


class Reader(html.parser.HTMLParser):
    """Tags, attributes, text and ids of a page; tags that do not match are errors."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.ids, self.open = set(), [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        self.text.append(data)


def check(text):
    """A page that stands alone."""
    found = Reader(text)
    assert not found.tags & {"script", "iframe", "object", "embed", "base", "form"}
    for name, value in found.attributes:
        assert not name.startswith("on"), (name, value)
        if name in ("href", "src", "xlink:href"):
            assert value.startswith(("#", "data:")), value
    assert len(found.ids) == len(set(found.ids)), "an id twice"
    links = {value[1:] for name, value in found.attributes if name == "href" and value.startswith("#")}
    assert links <= set(found.ids)
    assert not re.search(r"url\((?!['\"]?#)|@import", text)
    return found


@pytest.mark.parametrize("name", ["healthy_box", "nvlink_down", "failed_step"])
def test_a_page_stands_alone_and_says_all_findings(name):
    made = page.page(report(name))
    text = " ".join("".join(check(made).text).split())
    for one in findings.find(report(name)):
        assert one.what in text and one.remedy in text and all(number in text for number in one.numbers)
    for measured in quantities.of(report(name)):
        assert measured.name in text and measured.text() in text
    assert ("None: no rule found" in text) == (not EXPECTED[name])


def hostile(value):
    """Every text that has no fixed form, in names of fields too."""
    if isinstance(value, dict):
        return {
            key: hostile(one)
            if key not in ("format", "created", "state", "test", "kind", "section", "direction", "by")
            else one
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return HOSTILE + value if isinstance(value, str) else value


def test_a_hostile_report_is_text(monkeypatch):
    evil = hostile(report("no_peer_to_peer"))
    evil["topology"] = {"format": "thalweg topology 1", "nodes": [{"id": "gpu:0", "name": HOSTILE}], "links": []}
    monkeypatch.setattr(topology, "draw", lambda graph, name: f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE}</svg>")
    evil["versions"][HOSTILE] = HOSTILE
    evil["steps"].append(
        {
            "name": HOSTILE,
            "section": HOSTILE,
            "state": "failed",
            "why": HOSTILE,
            "rows": [{"test": HOSTILE, "ns": 3, HOSTILE: HOSTILE, f"{HOSTILE}_ns": 3}],
        }
    )
    evil = document.parse(json.dumps(evil), "evil.json")
    for made in (page.page(evil), compare.compare_page(evil, report("healthy_box")), compare.compare_page(evil, evil)):
        assert HOSTILE in "".join(check(made).text)
        assert "{{7*7}}" in made, "Jinja has not looked at what a report says"


def test_names_in_figures_are_text():
    evil = report("nvlink_down")
    for step in evil["steps"]:
        for row in step["rows"]:
            for name in ("transport", "pattern", "form", "tier", "by", "route"):
                if name in row:
                    row[name] = HOSTILE + "$x_{$\\frac" + row[name]
    check(page.page(evil))


def test_a_matrix_shows_its_numbers_in_readable_cells():
    table = content.matrix("m", "from", {("a", "b"): 1e9, ("b", "a"): 25e9, ("b", "b"): 12e9}, lambda v: f"{v / 1e9:g}")
    cells = {(row, column): cell for row, line in table.rows for column, cell in zip(table.columns, line, strict=True)}
    assert {key: cell.text for key, cell in cells.items()} == {
        ("a", "a"): "",
        ("a", "b"): "1",
        ("b", "a"): "25",
        ("b", "b"): "12",
    }

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for step in range(101):
        background, ink = content._colours(step / 100)
        dark, bright = sorted((luminance(background), luminance(ink)))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, (step, background, ink)
    assert content.matrix("m", "", {}, str) is None


def test_comparing_with_itself_and_with_a_fault():
    same, only_a, only_b = compare.pairs(report("healthy_box"), report("healthy_box"))
    assert len(same) > 400 and not (only_a or only_b or compare.changed(same))
    found, _, _ = compare.pairs(report("healthy_box"), report("gpu_pcie_x8"))
    changed = compare.changed(found)
    assert changed and {pair.outcome for pair in changed} == {"worse"}
    assert all("cuda:3" in pair.name and pair.ratio == "2 × worse" for pair in changed)
    back, _, _ = compare.pairs(report("gpu_pcie_x8"), report("healthy_box"))
    assert {pair.ratio for pair in compare.changed(back)} == {"2 × better"}
    other, only_a, _ = compare.pairs(report("healthy_box"), report("healthy_plain"))
    assert other and only_a > 100
    text = "".join(check(compare.compare_page(report("healthy_box"), report("gpu_pcie_x8"))).text)
    assert "GPU 3 reaches half the bandwidth" in text and "2 × worse" in text


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
browser = pytest.mark.skipif(BROWSER is None, reason="no chromium (scripts/setup.sh check, or apt-get install chromium)")


def browse(tmp_path, file, *options):
    """What the browser prints, and the addresses that the page asked for: the browser's own requests come from no origin."""
    log = tmp_path / "net.json"
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
            "--v=0",
            f"--log-net-log={log}",
            "--hide-scrollbars",
            *options,
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    asked = [
        line for line in log.read_text().splitlines() if '"initiator":"' in line and '"initiator":"not an origin"' not in line
    ]
    return done, re.findall(r'"url":"((?:https?|wss?)://[^"]+)"', "\n".join(asked))


@browser
@pytest.mark.parametrize(("name", "width"), [("nvlink_down", 1280), ("gpu_pcie_x8", 390)])
def test_a_browser_shows_it_from_a_file(tmp_path, name, width):
    file, picture = tmp_path / "page.html", tmp_path / "page.png"
    file.write_text(page.page(report(name)))
    done, asked = browse(tmp_path, file, f"--window-size={width},2400", f"--screenshot={picture}")
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not asked, f"the page asked for {asked}"
    from matplotlib import image

    pixels = image.imread(picture)
    assert pixels.shape[:2] == (2400, width) and pixels[..., :3].std() > 0.03, "something is drawn"


@browser
def test_the_log_of_the_browser_shows_what_a_page_asks_for(tmp_path):
    """That the test above could fail."""
    file = tmp_path / "bad.html"
    file.write_text("<script>console.error('broken')</script><img src='http://127.0.0.1:9/x.png'>")
    done, asked = browse(tmp_path, file, "--screenshot=" + str(tmp_path / "bad.png"))
    assert "CONSOLE" in done.stderr and asked == ["http://127.0.0.1:9/x.png"]


@browser
def test_a_narrow_page_does_not_scroll_sideways(tmp_path):
    """The whole is as wide as the window: only tables scroll, each within itself."""
    file = tmp_path / "page.html"
    text = page.page(report("healthy_hgx"))
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', text)[0]
    probe = "<script>document.title = document.documentElement.scrollWidth + ' of ' + window.innerWidth</script>"
    file.write_text(text.replace(policy, "").replace("</body>", probe + "</body>"))
    done, _ = browse(tmp_path, file, "--window-size=500,900", "--dump-dom")
    wide, window = re.search(r"<title>(\d+) of (\d+)</title>", done.stdout).groups()
    assert int(wide) <= int(window), f"{wide} wide in a window of {window}"
