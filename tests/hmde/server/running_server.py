"""An app that listens at a free port, in a thread of the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI


@contextmanager
def running(app: FastAPI, root_path: str = "") -> Iterator[str]:
    """The address of the app, which is stopped at the end of the block."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", root_path=root_path))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
