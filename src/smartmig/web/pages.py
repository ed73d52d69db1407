"""The dashboard's files: no data in them, so no token; all they show they ask the API for."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, HTTPException, Response

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A newer server may have newer files; they are small and near.
    "Cache-Control": "no-cache",
}


def add_pages(app: FastAPI) -> None:
    """`/` and `/static/...`, read once."""
    folder = files("smartmig.web") / "static"
    kept = {one.name: one.read_bytes() for one in folder.iterdir() if "." + one.name.rpartition(".")[2] in KINDS}

    def answer(name: str) -> Response:
        if name not in kept:
            raise HTTPException(404, f"no file {name[:60]!r}")
        return Response(kept[name], media_type=KINDS["." + name.rpartition(".")[2]], headers=HEADERS)

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return answer("index.html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return answer(name)
