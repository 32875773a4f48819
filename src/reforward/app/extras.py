"""Optional packages: what a verb needs beyond the plain install, and how to get it."""

from importlib.util import find_spec

from reforward.domain.errors import Unavailable

PACKAGES = {
    "agents": ("mcp", "starlette", "uvicorn"),
    "capture": ("aiohttp", "cryptography"),
    "drift": ("river",),
    "serve": ("prometheus_client", "starlette", "uvicorn"),
}


def need(*extras: str) -> None:
    """`Unavailable` if a package of one of these extras is missing."""
    missing = [package for extra in extras for package in PACKAGES[extra] if find_spec(package) is None]
    if missing:
        raise Unavailable(f"{missing[0]} is not installed; pip install 'reforward[{','.join(extras)}]'")
