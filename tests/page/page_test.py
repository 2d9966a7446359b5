#!/usr/bin/env python3
"""The page of `deltawire serve` in a real headless Chromium, with chains and replicas of the real program.

usage: page_test.py DELTAWIRE [PYTEST ARGUMENTS]

DELTAWIRE_PAGE_SHOTS=FOLDER keeps a screenshot of each view, DELTAWIRE_PAGE_README=FILE makes the one of the README.
"""
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

try:
    import pytest
    import xxhash  # noqa: F401
    from playwright.sync_api import expect, sync_playwright
except ImportError as error:
    print(f"skipped: {error}; scripts/venv build/venv page installs it")
    sys.exit(77)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from page_world import Chain, add_hops, lengthen, wait_until, write_heartbeat

VIEWS = ["fleet", "chain", "layers", "version", "events"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SLOW = 30_000  # milliseconds that a busy machine may take for what is usually there at once
expect.set_options(timeout=SLOW)
COLOURS = """canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  const data = copy.getImageData(0, 0, canvas.width, canvas.height).data, found = {};
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] === 255) { const key = data.slice(at, at + 3).join(); found[key] = (found[key] ?? 0) + 1; }
  return found;
}"""


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages; the test fails if one of them logs an error or a violation of its policy."""
    complaints, contexts = [], []

    def open_one(url, allowed=None, width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(SLOW)
        contexts.append(context)
        page = context.new_page()

        def hear(text):
            if not (allowed and re.search(allowed, text)):
                complaints.append(text)

        page.on("console", lambda message: hear(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: hear(f"{error}"))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not complaints, complaints


@pytest.fixture
def new_chain(tmp_path):
    """Creates chains whose processes end with the test."""
    chains = []

    def make(steps, name="world", **options):
        (tmp_path / name).mkdir()
        chains.append(Chain(os.environ["DELTAWIRE"], tmp_path / name, steps, **options))
        return chains[-1]

    yield make
    for chain in chains:
        chain.close()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A chain of 12 versions with an anchor and a merged delta, three replicas, and its server: for read-only tests."""
    chain = Chain(os.environ["DELTAWIRE"], tmp_path_factory.mktemp("quiet"), 11)
    for version in range(12):
        chain.publish_step(version, *(["--anchor-every", 6] if version else []))
    chain.must("compact", chain.store, "-q")
    for name, version in (("first", 11), ("second", 11), ("third", 8)):
        chain.must("pull", chain.store, chain.root / name, "--name", name, "--version", version, "-q")
    chain.url = chain.serve()
    yield chain
    chain.close()


def row(page, name):
    return page.locator(".fleet tbody tr", has=page.get_by_role("rowheader", name=name, exact=True))


def cell(page, name, heading):
    """The text of a replica's cell in the fleet."""
    expect(page.locator(".fleet thead th").first).to_be_visible()
    headings = page.locator(".fleet thead th").all_inner_texts()
    return row(page, name).locator("th, td").nth(headings.index(heading))


def keep(page, name):
    folder = os.environ.get("DELTAWIRE_PAGE_SHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def until(page, expression):
    """Wait for an expression: Playwright's wait_for_function() needs eval(), which the page's policy forbids."""
    wait_until(lambda: page.evaluate(expression), expression)


def wait_for_versions(page):
    """Wait until the chain's canvas has its bars: hundreds of pixels in the colours of all three panels."""
    until(page, f"""() => {{
      const canvas = document.querySelector("canvas");
      return canvas && canvas.width > 0 && Object.values(({COLOURS})(canvas)).filter(pixels => pixels > 300).length >= 4;
    }}""")


def test_fleet_follows_a_live_chain(new_chain, open_page):
    chain = new_chain(5)
    chain.publish_step(0)
    chain.publish_step(1)
    for name in ("keeps-up", "lags", "dies"):
        chain.follow(name)
        chain.wait_for(name, 1)
    page = open_page(chain.serve())
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#health")).to_contain_text("3 replicas")
    for name in ("keeps-up", "lags", "dies"):
        expect(cell(page, name, "State")).to_have_text("current")
        expect(cell(page, name, "Proof")).to_have_text("proven")
    keep(page, "fleet-all-well")

    # A publish appears without a reload.
    chain.publish_step(2)
    for name in ("keeps-up", "lags", "dies"):
        expect(cell(page, name, "Holds")).to_have_text("2")

    # One replica is stopped, one is killed, the third continues.
    chain.signal("lags", signal.SIGSTOP)
    chain.kill("dies")
    published = time.time()
    chain.publish_step(3)
    expect(cell(page, "keeps-up", "Holds")).to_have_text("3")
    expect(cell(page, "lags", "State")).to_have_text("behind")
    expect(cell(page, "lags", "Holds")).to_have_text("2")
    expect(cell(page, "lags", "Versions behind")).to_have_text("1")
    since = cell(page, "lags", "Since").inner_text()
    clock = time.strptime(since.split(" (")[0], "%H:%M:%S")
    assert abs(clock.tm_min * 60 + clock.tm_sec - (published % 3600)) < 10, since
    expect(cell(page, "lags", "Why")).to_contain_text("its process was stopped")
    expect(page.locator("#health")).to_have_class("warn")
    expect(page.locator("#health")).to_contain_text("lags")
    keep(page, "fleet-one-behind")

    chain.silence("dies", 3600)
    expect(cell(page, "dies", "State")).to_have_text("gone")
    expect(cell(page, "dies", "Why")).to_contain_text("no heartbeat since")
    quiet_colour = row(page, "dies").evaluate("tr => getComputedStyle(tr).color")
    assert quiet_colour != row(page, "keeps-up").evaluate("tr => getComputedStyle(tr).color")

    chain.signal("lags", signal.SIGCONT)
    expect(cell(page, "lags", "State")).to_have_text("current")
    expect(page.locator("#health")).not_to_contain_text("lags")
    page.get_by_role("link", name="Events").click()
    events = page.get_by_role("table", name="Events")
    for text in ("publish", "behind", "recovered", "gone"):
        expect(events.get_by_role("row").filter(has_text=text).first).to_be_visible()
    expect(events.get_by_role("row").filter(has_text="moved from version")).to_have_count(0)
    page.get_by_role("combobox", name="How serious").select_option(label="all events")
    expect(events.get_by_role("row").filter(has_text="moved from version").first).to_be_visible()
    expect(events.get_by_role("row").filter(has_text="gone").first).to_contain_text("dies")
    chain.publish_step(4)
    expect(events.get_by_role("link", name="4", exact=True).first).to_be_visible()
    keep(page, "events")


def test_names_engines_that_are_behind_and_why(new_chain, open_page):
    chain = new_chain(2)
    chain.publish_step(0)
    for name in ("engine-a", "engine-b"):
        chain.follow(name)
        chain.wait_for(name, 0)
    page = open_page(chain.serve())
    expect(cell(page, "engine-b", "State")).to_have_text("current")
    chain.signal("engine-b", signal.SIGSTOP)
    chain.publish_step(1)
    chain.wait_for("engine-a", 1)
    for part in chain.store.glob("parts/0000000001-*/*"):
        part.write_bytes(b"damaged" * 100)
    chain.signal("engine-b", signal.SIGCONT)

    expect(cell(page, "engine-b", "State")).to_have_text("failed")
    expect(cell(page, "engine-b", "Versions behind")).to_have_text("1")
    expect(cell(page, "engine-b", "Since")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d \(\d+ (s|min)"))
    expect(cell(page, "engine-b", "Why")).to_contain_text("last pull failed: corruption")
    expect(page.locator("#health")).to_contain_text("engine-b")
    expect(page.locator("#health")).to_contain_text("Since")
    expect(cell(page, "engine-a", "State")).to_have_text("current")
    assert page.locator(".fleet tbody th").first.inner_text() == "engine-b"  # the worst comes first
    # Screen readers were notified once.
    expect(page.locator("#said")).to_contain_text("engine-b")
    keep(page, "fleet-failed")


def test_chain_shows_versions_marks_and_replicas(quiet, open_page):
    page = open_page(quiet.url + "/#chain")
    wait_for_versions(page)
    keep(page, "chain")
    page.get_by_text("The same as a table").click()
    table = page.get_by_role("table", name="Versions")
    expect(table.locator("tbody tr")).to_have_count(12)
    expect(table.locator("tbody th").first).to_have_text("11")

    # The chart shows the same numbers as the program.
    canvas = page.locator("canvas")
    canvas.focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    readout = page.locator("figure .readout")
    expect(readout).to_contain_text(re.compile(r"^\d+: .* changed · .* m?s · "))
    page.keyboard.press("End")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("2 here: first, second")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Version", level=2)).to_be_visible()
    assert page.url.endswith("#version?n=11")
    page.go_back()
    expect(page.get_by_role("heading", name="Chain")).to_be_visible()


def test_layers_lead_to_the_history_of_one_tensor(quiet, open_page):
    page = open_page(quiet.url + "/#layers")
    rows = page.get_by_role("table", name="Layers")
    expect(rows.locator("tbody tr").nth(3)).to_be_visible()
    expect(rows).to_contain_text("attention")
    expect(rows.locator("tbody tr").first).to_contain_text("%")
    heat = page.locator("canvas").first
    until(page, f"() => Object.keys(({COLOURS})(document.querySelector('canvas'))).length > 10")
    keep(page, "layers")
    heat.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("figure .readout").first).to_contain_text("tensor")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^History of "))).to_be_visible()
    assert "row=" in page.url
    keep(page, "layers-history")
    tensor = rows.locator("tbody th").last.inner_text()
    rows.get_by_role("button", name=tensor).click()
    expect(page.get_by_role("heading", name=f"History of {tensor}")).to_be_visible()
    # The link can be shared: it shows the same view.
    again = open_page(page.url)
    expect(again.get_by_role("heading", name=f"History of {tensor}")).to_be_visible()
    page.get_by_role("button", name="All layers").click()
    expect(page.get_by_role("heading", name=re.compile("^History of "))).to_be_hidden()
    # The embeddings change enough for an estimate.
    large = open_page(quiet.url + "/#layers?row=0")
    expect(large.get_by_text(re.compile(r"about \d+ % of its changed weights moved by one ULP\.$"))).to_be_visible()


def test_version_page_shows_text_and_tables(quiet, open_page):
    page = open_page(quiet.url + "/#version")
    expect(page.get_by_text(re.compile("^Version 11 is a delta onto version 10"))).to_be_visible()
    for heading in ("This version", "What a new replica fetches", "Payloads by codec, without names and headers", "Parts"):
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.get_by_role("table", name=re.compile("^Tensors")).locator("tbody tr").first).to_contain_text("BF16")
    expect(page.locator(".facts")).to_contain_text("not signed")
    expect(page.locator(".facts")).to_contain_text("2 replicas: first, second")
    manifest = (quiet.store / "manifests/0000000011.json").read_bytes()
    part = re.search(rb'"parts":\[\{"bytes":\d+,"name":"([^"]+)"', manifest).group(1).decode()
    expect(page.get_by_role("table", name="Parts", exact=True)).to_contain_text(part)
    keep(page, "version")
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text(re.compile("^Version 10 is a"))).to_be_visible()
    assert page.url.endswith("n=10")
    page.get_by_label("Version", exact=True).fill("0")
    page.keyboard.press("Enter")
    expect(page.locator(".facts")).to_contain_text("whole")


def test_reports_a_missing_version(quiet, open_page):
    page = open_page(quiet.url + "/#version?n=99", allowed="404")
    expect(page.get_by_text(re.compile("^Version 99 could not be read: "))).to_be_visible()


HOSTILE = ["<script>document.title='owned'</script>", "\"><img src=x onerror=\"document.title='owned'\">", "'; alert(1); '",
           "\u202egnitoor\u202c", "\u05e9\u05dc\u05d5\u05dd 3", "A" * 10_000, "javascript:alert(1)", "${title}{{title}}"]


def test_shows_publish_events(quiet, open_page):
    page = open_page(quiet.url + "/#events")
    versions = page.get_by_role("table", name="Events").get_by_role("row").filter(has_text="was published")
    expect(versions).to_have_count(12)
    page.get_by_role("combobox", name="How serious").select_option(label="errors")
    expect(page.get_by_text("No event matches.")).to_be_visible()
    page.get_by_role("combobox", name="How serious").select_option(label="all events")
    page.get_by_role("searchbox").fill("whole")
    expect(versions).to_have_count(1)
    page.get_by_role("link", name="0", exact=True).click()
    expect(page.get_by_text(re.compile("^Version 0 "))).to_be_visible()


def test_fleet_shows_engines(new_chain, open_page):
    chain = new_chain(1)
    chain.publish_step(0)
    chain.publish_step(1)
    links = lengthen(chain.store, 3)
    held = dict(zip(("run", "version", "manifest"), links[1], strict=True))
    write_heartbeat(chain.store, "quick", 0, links[2], pause_microseconds=14_350)
    write_heartbeat(chain.store, "stuck", 1, links[2], serving=held)
    chain.silence("stuck", 100)
    write_heartbeat(chain.store, "silent", 2, links[2], serving=None)
    page = open_page(chain.serve())
    expect(cell(page, "quick", "Engine pause")).to_have_text("14 ms")
    expect(cell(page, "silent", "Engine pause")).to_have_text("–")
    expect(cell(page, "silent", "Serves")).to_have_text("–")
    expect(cell(page, "stuck", "State")).to_have_text("engine behind")
    expect(cell(page, "stuck", "Why")).to_contain_text("its engine still serves version 1")
    expect(page.locator("#health")).to_contain_text("stuck holds version 2, its engine serves version 1")


def test_store_vanishes_and_comes_back_with_another_run(new_chain, open_page):
    chain, other = new_chain(3), new_chain(1, "other")
    for version in range(3):
        chain.publish_step(version)
    other.publish_step(0)
    chain.must("pull", chain.store, chain.root / "r", "--name", "r", "-q")
    page = open_page(chain.serve() + "/#version", allowed="404|503")
    expect(page.get_by_text(re.compile("^Version 2 is a"))).to_be_visible()
    expect(page.locator("#health")).to_contain_text("holds version 2, proven")
    chain.store.rename(chain.root / "away")
    expect(page.locator("#health")).to_contain_text("holds no chain any more")
    expect(page.locator("#health")).to_have_class("bad")
    run = page.locator("#store").inner_text()
    other.store.rename(chain.store)
    expect(page.get_by_text(re.compile("^Version 0 is stored whole"))).to_be_visible()
    expect(page.locator("#health")).to_contain_text("version 0 is published; no replica")
    assert page.locator("#store").inner_text() != run
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_text("No replica matches.")).to_be_visible()
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_role("table", name="Events")).to_contain_text("the store holds another run")


def test_hostile_names_are_text(new_chain, open_page):
    chain = new_chain(1)
    chain.publish_step(0)
    chain.publish_step(1)
    links = lengthen(chain.store, 3)
    for number, text in enumerate(HOSTILE):
        write_heartbeat(chain.store, f"r{number}", number, links[number % 3], name=text, host=text, error=text)
    page = open_page(chain.serve())
    expect(page.locator(".fleet tbody tr")).to_have_count(len(HOSTILE))
    names = page.locator(".fleet tbody th").all_inner_texts()
    assert set(HOSTILE[:2]) < set(names), names
    keep(page, "hostile")
    for view in VIEWS:
        page.goto(page.url.split("#")[0] + f"#{view}")
        expect(page.get_by_role("heading", level=2).first).to_be_visible()
        page.wait_for_timeout(300)
        assert page.evaluate("document.querySelectorAll('main script, main img, header img, #health img, [onerror]').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert "owned" not in page.title()
    response = page.request.get(page.url.split("#")[0])
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy


def test_asks_for_the_token(new_chain, open_page):
    chain = new_chain(1)
    chain.publish_step(0)
    (chain.root / "token").write_text("correct-horse-battery-staple-0123456789")
    page = open_page(chain.serve("--token-file", chain.root / "token"), allowed="401")
    form = page.get_by_role("dialog")
    expect(form).to_contain_text("asks for a token")
    keep(page, "token")
    form.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(form.get_by_role("alert")).to_contain_text("did not accept")
    form.get_by_label("Token").fill("correct-horse-battery-staple-0123456789")
    form.get_by_role("button").click()
    expect(page.locator("#link")).to_have_text("live")
    expect(form).to_be_hidden()
    assert "correct" not in page.url + page.evaluate("document.cookie + JSON.stringify(localStorage)")
    page.reload()
    expect(page.locator("#link")).to_have_text("live")


def test_recovers_when_the_server_comes_back(new_chain, open_page):
    chain = new_chain(2)
    chain.publish_step(0)
    chain.publish_step(1)
    url = chain.serve()
    page = open_page(url, allowed="ERR_|Failed to load")
    expect(page.locator("#link")).to_have_text("live")
    chain.kill("server")
    expect(page.locator("#link")).to_have_text("not connected")
    expect(page.locator("#main")).to_have_class("stale")
    expect(page.locator("#health")).to_contain_text("The server has not answered since ")
    keep(page, "lost")
    chain.publish_step(2)
    chain.serve(address=url.split("//")[1].rstrip("/"))
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#health")).to_contain_text("Newest version 2")
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_role("table", name="Events").get_by_role("row").filter(has_text="version 0 was published")).to_have_count(1)


def test_polls_without_a_stream(quiet, open_page):
    page = open_page("about:blank", allowed="Failed to load")
    page.route("**/stream?*", lambda route: route.fulfill(status=503, json={"error": "too many readers"}))
    page.goto(quiet.url)
    expect(page.locator("#link")).to_have_text("asking every 5 s")
    expect(cell(page, "third", "Holds")).to_have_text("8")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1280, "dark")])
def test_works_on_small_and_dark_screens(quiet, open_page, width, scheme):
    page = open_page(quiet.url, width=width, height=740, color_scheme=scheme)
    for view in VIEWS:
        page.goto(f"{quiet.url}/#{view}")
        expect(page.get_by_role("heading", level=2).first).to_be_visible()
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        keep(page, f"{view}-{width}-{scheme}")
    measure = """() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce(
      (sum, text) => sum + Number(text), 0)"""
    assert (page.evaluate(measure) < 200) == (scheme == "dark")
    page.get_by_role("button", name="Theme").click()  # light
    assert page.evaluate(measure) > 600
    page.get_by_role("button", name="Theme").click()  # dark
    assert page.evaluate(measure) < 200
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


def test_works_with_keyboard_and_screen_reader(quiet, open_page):
    page = open_page(quiet.url)
    expect(cell(page, "third", "Holds")).to_have_text("8")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for role in ("banner", "navigation", "main"):
        expect(page.get_by_role(role)).to_have_count(1)
    page.get_by_role("link", name="Fleet").focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Chain")).to_be_focused()
    assert outline == "solid"
    page.get_by_role("link", name="Fleet").press("Enter")
    sort = page.get_by_role("columnheader", name="Holds").get_by_role("button")
    sort.press("Enter")
    expect(page.get_by_role("columnheader", name="Holds")).to_have_attribute("aria-sort", "descending")
    sort.press("Enter")
    expect(page.get_by_role("columnheader", name="Holds")).to_have_attribute("aria-sort", "ascending")
    expect(page.locator(".fleet tbody th").first).to_have_text("third")
    page.get_by_role("searchbox").fill("second")
    expect(page.locator(".fleet tbody tr")).to_have_count(1)
    assert page.url.endswith("#fleet?q=second&sort=version")
    page.reload()
    expect(page.locator(".fleet tbody tr")).to_have_count(1)
    for view in VIEWS:
        page.goto(f"{quiet.url}/#{view}")
        expect(page.get_by_role("heading", level=2).first).to_be_visible()
        page.wait_for_timeout(300)
        unnamed = page.evaluate("""[...document.querySelectorAll("button, input, select, canvas, table")].filter((node) =>
          !(node.textContent.trim() || node.ariaLabel || node.labels?.length)).map((node) => node.outerHTML)""")
        assert unnamed == [], view


def test_shows_the_first_version_of_an_empty_store(new_chain, open_page):
    chain = new_chain(1)
    chain.store.mkdir()
    page = open_page(chain.serve() + "/#chain")
    expect(page.get_by_text("Nothing was published yet").last).to_be_visible()
    for view in VIEWS:
        page.goto(page.url.split("#")[0] + f"#{view}")
        expect(page.get_by_role("heading", level=2).first).to_be_visible()
    page.goto(page.url.split("#")[0] + "#version")
    chain.publish_step(0)
    expect(page.get_by_text(re.compile("^Version 0 is stored whole|^Version 0 is"))).to_be_visible()
    expect(page.locator("#store")).to_contain_text(" · run ")
    page.get_by_role("link", name="Chain").click()
    page.get_by_text("The same as a table").click()
    expect(page.get_by_role("table", name="Versions").locator("tbody tr").first).to_contain_text("MB")


def test_shows_several_chains(quiet, new_chain, open_page):
    other = new_chain(1)
    other.publish_step(0)
    page = open_page(other.serve(stores=[quiet.store]))
    expect(page.locator("#health")).to_contain_text("Newest version 0")
    page.get_by_role("combobox", name="Chain").select_option(index=1)
    expect(page.locator("#health")).to_contain_text("Newest version 11")
    expect(cell(page, "third", "Holds")).to_have_text("8")
    assert "chain=1" in page.url


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """100,000 versions and 1,000 replicas."""
    chain = Chain(os.environ["DELTAWIRE"], tmp_path_factory.mktemp("big"), 1)
    chain.publish_step(0)
    chain.publish_step(1)
    links = lengthen(chain.store, 100_000)
    for number in range(1000):
        version = 99_000 - number * 40 if number % 50 == 7 else 99_999
        write_heartbeat(chain.store, f"rollout-{number}", number, links[version])
    yield chain
    chain.close()


def test_large_chain_is_usable(big, open_page):
    url = big.serve()
    asked = []
    page = open_page("about:blank")
    page.on("request", lambda request: asked.append(request.url))
    begun = time.monotonic()
    page.goto(url)
    expect(page.locator("#health")).to_contain_text("99,999")
    expect(page.locator(".fleet tbody tr")).to_have_count(100)
    usable = time.monotonic() - begun
    page.goto(f"{url}/#chain")
    wait_for_versions(page)
    print(f"usable after {usable:.2f} s, the chain is drawn after {time.monotonic() - begun:.2f} s")

    # All versions are shown, with at most one point per pixel.
    until(page, "!document.querySelector('#main').textContent.includes('so far')")
    keep(page, "big")
    width = page.locator("canvas").evaluate("canvas => canvas.width")
    points = [int(number) for address in asked for number in re.findall(r"versions\?.*points=(\d+)", address)]
    assert 0 < max(points) <= width
    # Zoom from 100,000 versions to 10, with the wheel and with keys.
    canvas = page.locator("canvas")
    canvas.hover(position={"x": 600, "y": 100})
    for _ in range(60):
        page.mouse.wheel(0, -200)
    until(page, """() => {
      const [from, to] = [...document.querySelectorAll("input[type=number]")].map(({value}) => Number(value));
      return to - from <= 11;
    }""")
    wait_for_versions(page)
    keep(page, "big-ten-versions")
    canvas.focus()
    page.keyboard.press("0")
    expect(page.get_by_label("From version")).to_have_value("0")
    # Dragging selects a range.
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
    page.mouse.up()
    until(page, "() => Number(document.querySelector('input[type=number]').value) > 40000")
    assert re.search(r"#chain\?from=\d+&to=\d+$", page.url)


def test_sorts_and_filters_thousands_of_rows(big, open_page):
    page = open_page(big.serve())
    expect(page.locator(".fleet tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text(re.compile("^101.200 of 1,000$"))).to_be_visible()
    page.get_by_role("searchbox").fill("rollout-77")
    expect(page.locator(".fleet tbody tr")).to_have_count(11)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name=re.compile("^behind 20")).click()
    expect(page.locator(".fleet tbody tr")).to_have_count(20)


@pytest.mark.skipif("DELTAWIRE_PAGE_README" not in os.environ, reason="makes the README's screenshot on demand")
def test_screenshot_for_the_readme(new_chain, open_page):
    chain = new_chain(1)
    chain.publish_step(0)
    chain.publish_step(1)
    links = lengthen(chain.store, 842)
    add_hops(chain.store, 842, 32)
    for number in range(12):
        late = {3: 12, 8: 160}.get(number, 0)
        error = "unavailable: http://10.0.0.1:8410/parts/0000000830: timed out" if number == 3 else None
        write_heartbeat(chain.store, f"rollout-{number}", number, links[841 - late], **({"error": error} if error else {}))
    page = open_page(chain.serve() + "/#chain", width=1100, height=900)
    wait_for_versions(page)
    expect(page.locator("#health")).to_contain_text("Since")
    page.locator("#store").evaluate("(store) => store.replaceChildren('s3://bucket/run7')")
    page.screenshot(path=os.environ["DELTAWIRE_PAGE_README"])
    assert os.path.getsize(os.environ["DELTAWIRE_PAGE_README"]) < 200_000


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: there is no Chromium; scripts/setup page installs it")
        sys.exit(77)
    os.environ["DELTAWIRE"] = str(Path(sys.argv[1]).resolve())
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
