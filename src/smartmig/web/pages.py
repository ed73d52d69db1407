"""The dashboard's files: no data in them, so no token; all they show they ask the API for."""

from __future__ import annotations

import functools
import gzip
from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request, Response

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

# Plotly puts style elements and attributes into the page; scripts stay our own files, as everywhere.
WITH_FIGURES = {
    **HEADERS,
    "Content-Security-Policy": HEADERS["Content-Security-Policy"]
    .replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
    .replace("img-src 'self' data:", "img-src 'self' data: blob:"),
}


@functools.cache
def plotly_js() -> bytes:
    """The library out of plotly's own wheel, packed: it is read once, and only when somebody draws."""
    return gzip.compress((files("plotly") / "package_data" / "plotly.min.js").read_bytes(), 6)


def add_pages(app: FastAPI) -> None:
    """`/`, `/playground` and `/static/...`, read once."""
    folder = files("smartmig.web") / "static"
    kept = {one.name: one.read_bytes() for one in folder.iterdir() if "." + one.name.rpartition(".")[2] in KINDS}

    def answer(name: str, headers: dict[str, str] = HEADERS) -> Response:
        if name not in kept:
            raise HTTPException(404, f"no file {name[:60]!r}")
        return Response(kept[name], media_type=KINDS["." + name.rpartition(".")[2]], headers=headers)

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return answer("index.html")

    @app.get("/playground", include_in_schema=False)
    @app.get("/playground/{run_id}", include_in_schema=False)
    def playground(run_id: str = "") -> Response:
        del run_id  # the page asks for the run itself
        return answer("playground.html", WITH_FIGURES)

    @app.get("/static/plotly.js", include_in_schema=False)
    def plotly(request: Request) -> Response:
        headers = {**HEADERS, "Cache-Control": "max-age=86400", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(plotly_js(), media_type=KINDS[".js"], headers={**headers, "Content-Encoding": "gzip"})
        return Response(gzip.decompress(plotly_js()), media_type=KINDS[".js"], headers=headers)

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return answer(name)
