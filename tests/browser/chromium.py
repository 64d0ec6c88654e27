"""Drives a headless Chromium over its own debugging protocol, for the tests of the dashboard.

Chromium comes from the system (Debian's package `chromium`), axe-core from the package that
`make tools` fetches. Where one is missing the tests are skipped and say so.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from scripts.fetch_test_tools import AXE

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / ".cache" / "browser" / "shots"
BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or ""
WAIT_S = 20.0


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []  # of the console, and uncaught errors
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
                continue
            method, about = said["method"], said["params"]
            if method == "Runtime.exceptionThrown":
                self.complaints.append(str(about["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
                self.complaints.append(str(about["args"]))
            elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
                self.complaints.append(about["entry"]["text"])

    async def send(self, method: str, **params: Any) -> Any:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        said = await asyncio.wait_for(answer, WAIT_S)
        assert "error" not in said, said
        return said["result"]

    async def value(self, script: str) -> Any:
        """Of an expression, awaited."""
        result = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, script: str, *, within_s: float = WAIT_S) -> None:
        """Wait in the page, where mutations wake the wait, until the expression is true."""
        wait = f"""new Promise((resolve) => {{
          const holds = () => {{ try {{ return {script}; }} catch {{ return false; }} }};
          const look = () => holds() ? (watch.disconnect(), resolve(true)) : null;
          const watch = new MutationObserver(look);
          watch.observe(document, {{subtree: true, childList: true, attributes: true,
                                    characterData: true}});
          setTimeout(() => {{ watch.disconnect(); resolve(holds()); }}, {within_s * 1000});
          look();
        }})"""
        assert await self.value(wait), (script, await self.value("document.body?.innerText"))

    async def press(self, key: str, code: int, text: str = "") -> None:
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {**about, "text": text} if text else about
        await self.send("Input.dispatchKeyEvent", type="keyDown", **down)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    async def look(self, *, width: int, height: int, dark: bool) -> None:
        """As a screen of that size and colour scheme."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def shot(self, name: str) -> None:
        """Keep a picture, for people to look at."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        taken = await self.send("Page.captureScreenshot", captureBeyondViewport=True)
        (SHOTS / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    async def violations(self) -> list[str]:
        """What axe-core finds, in a line each."""
        await self.value(AXE.read_text(encoding="utf-8") + ";0")
        found = await self.value("axe.run().then((r) => r.violations)")
        return [f"{v['id']}: {[n['html'] for n in v['nodes']][:3]}" for v in found]

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@contextlib.asynccontextmanager
async def chromium(url: str) -> AsyncIterator[Page]:
    """A page that shows `url`."""
    if not BINARY:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    if not AXE.exists():
        pytest.skip("no axe-core here: run `make tools`")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            BINARY, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": folder},
        )  # fmt: skip
        assert process.stderr is not None
        try:
            address = await asyncio.wait_for(_address(process.stderr), 60)
            drain = asyncio.create_task(process.stderr.read())
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://{address}/json/list") as answer:
                    (tab,) = [t for t in await answer.json() if t["type"] == "page"]
                async with session.ws_connect(
                    tab["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    page = Page(socket)
                    for domain in ("Page", "Runtime", "Log"):
                        await page.send(f"{domain}.enable")
                    await page.send("Page.navigate", url=url)
                    yield page
                    await page.close()
            drain.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _address(errors: asyncio.StreamReader) -> str:
    async for raw in errors:
        line = raw.decode(errors="replace")
        if "DevTools listening on ws://" in line:
            return line.split("ws://")[1].split("/")[0]
    raise AssertionError("Chromium did not start")
