"""Take a screenshot of the page of a running `electra serve` for the docs: a scored text, with one token opened.

    electra serve RUN & python docs/picture_of_page.py http://127.0.0.1:8000 docs/pictures/page.png \
        "The chef cooked the banana." --token 4 [--threshold .3] [--dark]

Needs Chromium (scripts/install-chromium) and playwright, as the browser tests do.
"""

import argparse
import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("out", type=Path)
    parser.add_argument("text")
    parser.add_argument("--token", type=int, help="index of the token whose proposals are shown, from 0")
    parser.add_argument("--threshold", type=float, default=0.5)
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": 1000, "height": 500},
            device_scale_factor=1.5,
            color_scheme="dark" if options.dark else "light",
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(options.address)
        page.locator(".token").first.wait_for()
        page.get_by_label("Text", exact=True).fill(options.text)
        page.get_by_role("button", name="Score").click()
        page.wait_for_function("text => currentText === text", arg=options.text)
        page.get_by_label("Threshold for flagging").fill(str(options.threshold))
        if options.token is not None:
            page.locator(".token").nth(options.token).click()
            page.wait_for_timeout(3_000)
        page.screenshot(path=options.out, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
