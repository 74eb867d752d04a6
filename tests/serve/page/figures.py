"""Measures the page in a browser, as a table for docs/page.md: `python -m tests.serve.page.figures [--edits N]`."""

import argparse
import shutil
from statistics import median
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright
from tqdm import tqdm

from tests.serve.page.conftest import CHROMIUM, FLAGS, SENTENCES, TRANSLATED, translate
from tests.support.cases import cases
from tests.support.live import run_service
from tests.support.paths import ROOT

CASES = cases(__file__)

LOADS = 9
KEYSTROKES = 15
# Somebody who types for an hour and pauses once per second.
EDITS = 3600
PAUSE_MILLISECONDS = 200

# Collects what the browser traces, before the page loads.
OBSERVE: str = CASES["traces of the browser"]
# Resolves with the milliseconds from the next keystroke to the first text of its translation.
FIRST_TEXT: str = CASES["milliseconds from a keystroke to text"]
WEIGHT: str = CASES["bytes that a page takes"]


def open_page(browser: Browser, address: str) -> Page:
    """Returns the loaded page of a browser without a cache."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US").new_page()
    page.add_init_script(OBSERVE)
    page.goto(f"{address}/#en/de/")
    page.wait_for_function("document.querySelector('#target-language').value === 'de'")
    page.wait_for_function("traced.largest > 0")
    return page


def loads(browser: Browser, address: str) -> dict[str, str]:
    """Returns what the browser traced while it loaded the page, medians of several loads."""
    traces: list[dict[str, Any]] = []
    for _ in range(LOADS):
        page = open_page(browser, address)
        page.wait_for_timeout(300)
        traces.append(page.evaluate("traced") | {"weight": page.evaluate(WEIGHT)})
        page.context.close()

    def typical(name: str) -> float:
        return float(median(trace[name] for trace in traces))

    return {
        "first contentful paint": f"{typical('paint'):.0f} ms",
        "largest contentful paint": f"{typical('largest'):.0f} ms",
        "layout shift": f"{typical('shift'):.3f}",
        "blocked beyond 50 ms": f"{typical('blocked'):.0f} ms",
        "transferred": f"{typical('weight') / 1000:.1f} kB",
    }


def first_tokens(browser: Browser, address: str) -> dict[str, str]:
    """Returns the time from a keystroke to the first text of its translation."""
    page = open_page(browser, address)
    translate(page)
    waits: list[float] = []
    for _ in range(KEYSTROKES):
        page.focus("#source")
        page.keyboard.press("Control+End")
        page.evaluate(f"window.first = ({FIRST_TEXT})(); 0")
        page.keyboard.press("a")
        waits.append(page.evaluate("window.first"))
        page.wait_for_selector(TRANSLATED)
    page.context.close()
    name = f"first text after a keystroke, {PAUSE_MILLISECONDS} ms of pause included"
    return {name: f"{median(waits):.0f} ms ({min(waits):.0f} to {max(waits):.0f})"}


def memory(session: CDPSession) -> tuple[float, int]:
    """Returns the heap in MB and the number of nodes, after a garbage collection."""
    session.send("HeapProfiler.collectGarbage")
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return metrics["JSHeapUsedSize"] / 1e6, int(metrics["Nodes"])


def typing(browser: Browser, address: str, edits: int) -> dict[str, str]:
    """Returns the memory before and after the edits, each of them translated."""
    page = open_page(browser, address)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    translate(page)
    before, nodes_before = memory(session)
    words = SENTENCES.split()
    for edit in tqdm(range(edits), unit="edit"):
        page.fill("#source", " ".join(words[: 2 + edit % (len(words) - 2)]))
        page.keyboard.press("Control+Enter")
        # A handle from wait_for_selector would keep each translation in memory.
        page.locator(TRANSLATED).first.wait_for()
    translate(page)
    after, nodes_after = memory(session)
    page.context.close()
    return {
        f"heap before and after {edits:,} translated edits": f"{before:.1f} and {after:.1f} MB",
        f"nodes before and after {edits:,} translated edits": f"{nodes_before:,} and {nodes_after:,}",
    }


def main(edits: int) -> None:
    with run_service(ROOT / "bundles" / "multi30k", []) as live, sync_playwright() as run:
        browser = run.chromium.launch(executable_path=shutil.which(CHROMIUM), args=FLAGS)
        address = live.http_url
        figures = loads(browser, address) | first_tokens(browser, address) | typing(browser, address, edits)
        print(f"Chromium {browser.version}\n\n| | |\n| --- | ---: |")
        print("\n".join(f"| {name} | {value} |" for name, value in figures.items()))
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=EDITS, help="translated edits between two measurements of memory")
    main(parser.parse_args().edits)
