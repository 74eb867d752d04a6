"""Runs the request that the page shows as code."""

import re
import shlex
import subprocess
import sys
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.support.live import WAIT_SECONDS


def forms_of_the_request(page: Page, count: int = 5) -> list[str]:
    """Opens the drawer with the request as code; returns its forms."""
    page.click("#code summary")
    forms = page.locator("#code pre")
    expect(forms).to_have_count(count)
    return forms.all_inner_texts()


def printed_by(python: str) -> str:
    return subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, check=True).stdout.strip()


def data_of(code: str) -> str:
    match = re.search(r"(?:--data|-d) ('.*?')(?: |$)", code, re.DOTALL)
    assert match is not None
    return shlex.split(match[1])[0]


def posted(code: str) -> Any:
    """Sends the request of a `curl` command."""
    words = shlex.split(code.replace("\\\n", " "))
    headers = [words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "--header"]
    return httpx.post(words[1], content=data_of(code), headers=dict(headers), timeout=WAIT_SECONDS).json()
