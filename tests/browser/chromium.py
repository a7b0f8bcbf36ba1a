"""A headless Chromium to test pages in, through its DevTools protocol: JSON over two pipes, no port, no package."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)
LIMIT = 60.0  # seconds for one answer
COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.requestWillBeSent")
KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9), " ": (" ", 32), "End": ("", 35), "Home": ("", 36)}
KEYS |= {"ArrowLeft": ("", 37), "ArrowUp": ("", 38), "ArrowRight": ("", 39), "ArrowDown": ("", 40)}


class Chromium:
    """One tab. `complaints` are the exceptions, console lines and requests of the page that is open."""

    def __init__(self, profile: Path) -> None:
        assert BINARY
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # Chromium reads from 3 and writes to 4.
        command = [
            *("bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", BINARY),
            *(*FLAGS, f"--user-data-dir={profile}", "about:blank"),
        ]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stdout=quiet, stderr=quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._sent, self._session = b"", 0, ""
        self.complaints: list[dict[str, Any]] = []
        tabs = self.call("Target.getTargets")["targetInfos"]
        target = next(tab["targetId"] for tab in tabs if tab["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(LIMIT)

    def call(self, method: str, **params: object) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._sent:
            if answer.get("method") in COMPLAINTS:
                self.complaints.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        found: dict[str, Any] = answer["result"]
        return found

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, *_ = select.select([self._from], [], [], LIMIT)
            assert ready, "Chromium does not answer"
            more = os.read(self._from, 1 << 20)
            assert more, "Chromium is gone"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, page: Path) -> None:
        self.complaints.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait_for("document.documentElement?.dataset.ready")

    def wait_for(self, condition: str) -> None:
        end = time.monotonic() + LIMIT
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"never: {condition}; {self.complaints}"
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, *keys: str) -> None:
        for key in keys:
            text, code = KEYS[key]
            event = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def media(self, scheme: str, width: int = 1280, height: int = 900) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, out: Path) -> None:
        taken = self.call("Page.captureScreenshot")
        out.write_bytes(base64.b64decode(taken["data"]))
