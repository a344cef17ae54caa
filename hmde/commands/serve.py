"""`hmde serve INDEX`: answer over HTTP, and show a page to search in."""

from __future__ import annotations

import socket

from hmde.commands.opening import opened
from hmde.commands.options import ServeOptions
from hmde.server.client import token


def main(options: ServeOptions) -> None:
    secret = token()
    check_port(options.host, options.port)
    index = opened(options)
    from hmde.server.app import serve  # needs the extra `server`

    serve(index, options.host, options.port, secret, options.cors, options.root_path)


def check_port(host: str, port: int) -> None:
    """
    Raises:
        ValueError: no server can listen there.
    """
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"no server can listen at {host}, port {port} ({error}); name others by --host, --port"
        ) from None
