"""What a visitor does on each page of the demo site, by keys alone. test_every_page.py does it online and offline."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Page

READY = "#status.done, .unsupported, #lines li"
MOST_TABS = 80  # from the top of a page to its main action


@dataclass(frozen=True)
class Step:
    """With the focus at `at`, keys are pressed until `done` (JavaScript) holds."""

    at: str
    keys: tuple[str, ...]
    done: str

    def take(self, page: Page) -> None:
        """Without a pointer: the focus gets there by Tab."""
        page.wait_for_selector(f"{self.at}:enabled, {self.at}:not(button)")
        here = f"document.querySelector({self.at!r}) === document.activeElement"
        for _ in range(MOST_TABS):
            if page.evaluate(here):
                break
            page.keyboard.press("Tab")
        assert page.evaluate(f"{here} && getComputedStyle(document.activeElement).outlineStyle !== 'none'"), (
            f"Tab does not reach {self.at}, or its focus cannot be seen"
        )
        for key in self.keys:
            page.keyboard.press(key)
        page.wait_for_function(self.done)


def shows(selector: str, text: str) -> str:
    return f"document.querySelector({selector!r})?.textContent.includes({text!r})"


LEARNS = Step("#train", ("Enter",), "Number(document.querySelector('#loss').textContent) > 0")
SAMPLES = Step("#samples", ("Enter",), "document.querySelectorAll('.example.held-out').length > 0")
TWELVE_DOWN = (" ", *["ArrowDown"] * 12)

# by the paths of demo/pages.js; "" is the front page
ACTIONS: dict[str, tuple[Step, ...]] = {
    "chat/": (  # its model is not there in all copies of the site; e2e/test_chat_page.py asks it
        Step("summary", ("Enter",), "document.querySelector('details').open"),
        Step("#temperature", ("ArrowRight",), "document.querySelector('#temperature').value === '0.25'"),
    ),
    "tune/": (  # the same: e2e/test_tune_page.py trains it
        Step("#temperature", ("ArrowRight",), "document.querySelector('#temperature').value === '0.65'"),
    ),
    "": (Step("[data-picture='read/page.jpg']", ("Enter",), shows("#lines", "from old Miss Watson")),),
    "playground/": (Step("#examples button:last-child", ("Enter",), shows("#values", "Output [159, 239]")),),
    "model/": (Step("[data-example='../digits/digits.onnx']", ("Enter",), shows("#report", "Conv")),),
    "benchmark/": (Step("#measure", ("Enter",), shows("#status", "Measured")),),
    "gpu/": (Step("#measure", ("Enter",), shows("#status", "Measured")),),
    "text/": (Step("#write", ("Enter",), "document.querySelector('#text').textContent.length > 60"),),
    "vad/": (Step("#voice", ("Enter",), "document.querySelector('#verdict').textContent === 'Speech'"),),
    "camera/": (Step("#next", ("Enter",), "Number(document.querySelector('#count').textContent) > 1"),),
    "digits/": (Step("#pad", TWELVE_DOWN, "document.querySelector('#digit').textContent === '1'"),),
    "teach/": (SAMPLES, LEARNS),
    "speak/": (LEARNS,),
    "yours/": (SAMPLES, LEARNS),
    "notebook/": (Step(".cell:nth-child(2) textarea", ("Shift+Enter",), shows(".cell:nth-child(2) pre", "map mul")),),
}
# What a link to the page reopens after its actions, as JavaScript. Voice has nothing of the kind.
STATES: dict[str, str] = {
    "": "document.querySelector('#credit').textContent",
    "chat/": "document.querySelector('#temperature').value",
    "tune/": "document.querySelector('#temperature').value",
    "playground/": "document.querySelector('.cm-content').textContent + document.querySelector('#shapes').value",
    "model/": "document.querySelector('#status').textContent.split(':')[0]",
    "benchmark/": "document.querySelector('#rows').textContent",
    "gpu/": "document.querySelector('#rows').textContent",
    "text/": "document.querySelector('#prompt').value + document.querySelector('#temperature').value",
    "camera/": "document.querySelector('#picture').dataset.label",
    "digits/": "document.querySelector('#digit').textContent",
    "teach/": "document.querySelectorAll('.example').length",
    "speak/": "document.querySelector('#steps').value",
    "yours/": "[...document.querySelectorAll('#classes input[type=text]')].map(({ value }) => value).join()",
    "notebook/": "[...document.querySelectorAll('.cell textarea')].map(({ value }) => value).join()",
}
# What is typed before into a field of the page.
TYPED = {
    "text/": ("#prompt", "A kernel is"),
    "speak/": ("#steps", "77"),
    "notebook/": (".cell textarea", "'typed by a visitor'"),
}
QUERIES = {"gpu/": "?only=^LSTM&tune=0"}  # all cases take minutes


def address(path: str) -> str:
    return f"{path}index.html{QUERIES.get(path, '')}"
