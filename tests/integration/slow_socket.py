"""A unix socket in front of another one that lets bytes through late, or not at all."""

import asyncio
import threading
from pathlib import Path


class SlowSocket:
    """`delay_s`: of every piece of data, either way; None holds everything back. Use as a context
    manager."""

    def __init__(self, listen: Path, target: Path):
        self.listen, self.target = listen, target
        self.delay_s: float | None = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "SlowSocket":
        self._thread.start()
        serving = asyncio.start_unix_server(self._serve, str(self.listen))
        asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _close(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader, writer) -> None:
        try:
            there = await asyncio.open_unix_connection(str(self.target))
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))

    async def _pump(self, reader, writer) -> None:
        try:
            while data := await reader.read(65536):
                while self.delay_s is None:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
