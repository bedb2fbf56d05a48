"""Declare the options of a verb that serves a page: its address, and who may open it."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_page_options", "page_options"]


def add_page_options(parser: argparse.ArgumentParser, port: int) -> None:
    """Declare the options, with this port as the default."""
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, only this machine)")
    parser.add_argument("--port", type=int, default=port, help=f"0 for any free port (default: {port})")
    parser.add_argument(
        "--tokens",
        metavar="FOLDER",
        help="of `rlenv-robot operate tokens new`; without it, one token is made and printed",
    )
    parser.add_argument(
        "--name", action="append", default=[], help="another name by which browsers reach this machine; may be repeated"
    )
    parser.add_argument("--certificate", metavar="FILE", help="for TLS (PEM); required if other machines connect")
    parser.add_argument("--private-key", metavar="FILE", help="of the certificate (PEM)")


def page_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values, as `rlenv_operate.console.page_server.PageSettings` takes them."""
    return {
        "host": args.host, "port": args.port, "tokens": args.tokens, "names": tuple(args.name),
        "certificate": args.certificate, "private_key": args.private_key,
    }  # fmt: skip
