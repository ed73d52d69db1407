"""`smartmig serve` as a real process: HTTP, tokens, events, the kill switch, kill -9."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from served import PATIENCE_S, SMARTMIG, Daemon, smartmig
from smartmig.control.store import open_store
from smartmig.control.tokens import Role, add_token
from smartmig.web.guarding import RateLimit


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def tokens(home: Path) -> dict[str, str]:
    done = smartmig(home, "token", "add", "ann", "--role", "operator")
    assert done.returncode == 0, done.stderr
    made = {"ann": done.stdout.strip()}
    engine = open_store(str(home / "journal.db"))
    made |= {name: add_token(engine, name, Role.viewer) for name in ("bob", "eve")}
    engine.dispose()
    assert smartmig(home, "token", "revoke", "eve").returncode == 0
    return made


@pytest.fixture(scope="module")
def daemon(home: Path, tokens: dict[str, str]) -> Iterator[Daemon]:  # noqa: ARG001
    running = Daemon(home, "--adapter", "simulated:nodes=2x4,speedup=2000,load=2", "--mode", "act")
    yield running
    if running.process.poll() is None:
        assert running.stop() == 0


def ask(daemon: Daemon, token: str | None, path: str, method: str = "GET", **rest: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, daemon.url + path, headers=headers, timeout=60, **rest)


READS = (
    "/api/v1/state",
    "/api/v1/queue",
    "/api/v1/plans",
    "/api/v1/plans/last",
    "/api/v1/journal",
    "/api/v1/effect",
    "/api/v1/guard",
    "/metrics",
    "/openapi.json",
)
CHANGES = (
    ("/api/v1/pause", None),
    ("/api/v1/resume", None),
    ("/api/v1/mode", {"mode": "act"}),
    ("/api/v1/kill", {"why": "x"}),
)


def test_health__needs_no_token(daemon: Daemon) -> None:
    answer = ask(daemon, None, "/health")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert answer.json()["mode"] == "act"


def test_serve__says_all_it_says_as_json(daemon: Daemon) -> None:
    with socket.create_connection(("127.0.0.1", int(daemon.url.rpartition(":")[2]))) as rude:
        rude.sendall(b"this is no request\r\n\r\n")
        rude.recv(1000)
    daemon.wait_for("Invalid HTTP request")
    for line in daemon.log.read_text().splitlines():
        assert {"time", "level", "what"} <= json.loads(line).keys()


def test_api__every_other_route_asks_for_a_token(daemon: Daemon, tokens: dict[str, str]) -> None:
    listed = ask(daemon, tokens["bob"], "/openapi.json").json()["paths"]
    routes = [(path, verb) for path, verbs in listed.items() for verb in verbs if path != "/health"]
    assert {path for path, _ in routes} >= {*READS, *(path for path, _ in CHANGES), "/events", "/api/v1/login"}
    tries = [(path, verb, None) for path, verb in routes]
    tries += [("/api/v1/state", "get", token) for token in ("ann.wrong", tokens["eve"], "x" * 500, "ann.")]
    for path, verb, token in tries:
        code = ask(daemon, token, path, verb.upper(), json={}).status_code
        while code == 429:  # trying tokens out is slow
            time.sleep(0.2)
            code = ask(daemon, token, path, verb.upper(), json={}).status_code
        assert code == 401, (path, verb, token)
    for path in ("/docs", "/redoc", "/nowhere"):
        assert ask(daemon, None, path).status_code == 404


@pytest.mark.parametrize("path", READS)
def test_api__viewers_may_look(daemon: Daemon, tokens: dict[str, str], path: str) -> None:
    answer = ask(daemon, tokens["bob"], path)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("path", "body"), CHANGES)
def test_api__viewers_may_change_nothing(daemon: Daemon, tokens: dict[str, str], path: str, body: Any) -> None:
    assert ask(daemon, tokens["bob"], path, "POST", json=body).status_code == 403


def test_api__shows_who_runs_where(daemon: Daemon, tokens: dict[str, str]) -> None:
    def look() -> dict[str, Any]:
        found: dict[str, Any] = ask(daemon, tokens["bob"], "/api/v1/state").json()
        return found

    daemon.until(lambda: any(node["jobs"] for node in look()["nodes"]))
    state = look()
    assert [node["name"] for node in state["nodes"]] == ["node0", "node1"]
    for node in state["nodes"]:
        held = sum(job["n_gpus"] for job in node["jobs"])
        assert held == node["n_gpus"] - node["n_free"]
    plan = ask(daemon, tokens["bob"], "/api/v1/plans/last").json()
    assert plan["mode"] == "act"
    assert set(plan["alternatives"]) == {"queue", "slices", "cuts"}
    metrics = ask(daemon, tokens["bob"], "/metrics").text
    for name in ("smartmig_starts_total", "smartmig_energy_joules_total", "smartmig_decision_duration_seconds_bucket"):
        assert name in metrics


def test_events__stream_what_happens(daemon: Daemon, tokens: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {tokens['bob']}"}
    with httpx.stream("GET", daemon.url + "/events", headers=headers, timeout=60) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data:"):
                assert isinstance(json.loads(line[5:]), dict)
                break


def test_events__end_soon_for_a_revoked_token(daemon: Daemon, home: Path) -> None:
    token = smartmig(home, "token", "add", "guest").stdout.strip()
    with httpx.stream(
        "GET", daemon.url + "/events", headers={"Authorization": f"Bearer {token}"}, timeout=60
    ) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": smartmig events"
        assert smartmig(home, "token", "revoke", "guest").returncode == 0
        revoked_s = time.monotonic()
        for _ in lines:
            assert time.monotonic() - revoked_s < 30


def test_operators__changes_are_audited(daemon: Daemon, tokens: dict[str, str]) -> None:
    assert ask(daemon, tokens["ann"], "/api/v1/pause", "POST").json()["paused"]
    assert not ask(daemon, tokens["ann"], "/api/v1/resume", "POST").json()["paused"]
    assert ask(daemon, tokens["ann"], "/api/v1/mode", "POST", json={"mode": "shadow"}).json()["mode"] == "shadow"
    assert ask(daemon, tokens["ann"], "/api/v1/mode", "POST", json={"mode": "lead"}).status_code == 422
    assert ask(daemon, tokens["ann"], "/api/v1/mode", "POST", json={"mode": "act"}).json()["mode"] == "act"
    audits = "/api/v1/journal?kind=audit&limit=1000"
    daemon.until(lambda: sum(one["body"]["who"] == "ann" for one in ask(daemon, tokens["bob"], audits).json()) == 4)
    records = ask(daemon, tokens["bob"], audits).json()
    assert {one["body"]["name"] for one in records if one["body"]["what"] == "token add"} >= {"ann", "bob", "eve"}
    done = [(one["body"]["who"], one["body"]["what"]) for one in records if one["body"]["who"] == "ann"]
    assert done == [("ann", "pause"), ("ann", "resume"), ("ann", "mode"), ("ann", "mode")]


def test_rate_limit__slows_down_who_tries_tokens_out(daemon: Daemon) -> None:
    with httpx.Client(base_url=daemon.url, timeout=60) as client:
        claims = ({"X-Forwarded-For": f"10.0.0.{at}"} for at in range(60))
        codes = [client.get("/api/v1/guard", headers=claim).status_code for claim in claims]
    assert set(codes) == {401, 429}


def test_rate_limit__counts_by_name() -> None:
    limit = RateLimit(per_s=1e-6, burst=3)
    assert [limit.wait_s("ann") == 0 for _ in range(5)] == [True, True, True, False, False]
    assert limit.wait_s("bob", cost=3.0) == 0
    assert limit.wait_s("bob") > 0


def test_kill__by_command_releases_at_once(daemon: Daemon, home: Path, tokens: dict[str, str]) -> None:
    done = smartmig(home, "kill", "--json")
    assert json.loads(done.stdout)["kill_file"] == str(home / "kill")
    daemon.wait_for(r'"did": "let go"')
    assert ask(daemon, None, "/health").json()["status"] == "killed"
    assert not ask(daemon, tokens["bob"], "/api/v1/state").json()["in_charge"]
    assert "is off" in smartmig(home, "resume").stdout
    daemon.until(lambda: bool(ask(daemon, tokens["bob"], "/api/v1/state").json()["in_charge"]))
    assert ask(daemon, None, "/health").json()["status"] == "ok"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_serve__ends_though_a_request_does_not(tmp_path: Path) -> None:
    token = smartmig(tmp_path, "token", "add", "ann", "--role", "operator").stdout.strip()
    host, shown = ("::1", "[::1]") if has_ipv6() else ("127.0.0.1", "127.0.0.1")
    running = Daemon(tmp_path, "--adapter", "simulated:nodes=1x4", "--mode", "act", "--host", host)
    assert running.url.startswith(f"http://{shown}:")
    with socket.create_connection((host, int(running.url.rpartition(":")[2]))) as silent:
        silent.sendall(
            f"POST /api/v1/mode HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{".encode()
        )
        time.sleep(0.5)
        began_s = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - began_s < 15
    assert '"did": "let go"' in running.log.read_text()


def test_serve__silent_connections_use_up_no_descriptors(tmp_path: Path) -> None:
    running = Daemon(tmp_path, "--adapter", "simulated:nodes=1x4", "--mode", "act")
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (512, 512))
    address = ("127.0.0.1", int(running.url.rpartition(":")[2]))
    with contextlib.ExitStack() as silent:
        for _ in range(700):
            silent.enter_context(socket.create_connection(address))
        assert smartmig(tmp_path, "kill").returncode == 0
        running.wait_for(r'"did": "let go"')
        assert len(list(Path(f"/proc/{running.process.pid}/fd").iterdir())) < 400
    running.until(lambda: ask(running, None, "/health").json()["status"] == "killed")
    assert running.stop() == 0
    assert "Too many open files" not in running.log.read_text()


def test_serve__takes_no_cluster_over_before_it_can_listen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = smartmig(tmp_path, "serve", "--port", port, "--adapter", "simulated:nodes=1x4", "--mode", "act")
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}; is it in use" in done.stderr
    assert "take over" not in done.stderr
    assert "token" not in done.stderr


def test_serve__survives_kill_9_and_goes_on(daemon: Daemon, home: Path, tokens: dict[str, str]) -> None:
    daemon.until(lambda: ask(daemon, tokens["bob"], "/api/v1/effect").json().get("n_finished", 0) > 5)
    daemon.stop(signal.SIGKILL)
    first = json.loads(smartmig(home, "replay", home / "journal.db", "--json").stdout)
    assert (first["n_different"], first["n_sessions"]) == (0, 1)
    assert first["n_decisions"] > 10
    second = Daemon(home, "--adapter", "simulated:speedup=2000", "--mode", "act", "--repartition", "mean-field")
    busy = smartmig(home, "serve", "--no-api")
    assert busy.returncode == 1
    assert "another smartmig writes this journal" in busy.stderr
    second.until(lambda: ask(second, tokens["bob"], "/api/v1/effect").json().get("n_finished", 0) > 5)
    state = ask(second, tokens["bob"], "/api/v1/state").json()
    slots = [slot for card in state["nodes"][0]["gpus"] for slot in card["slots"]]
    assert len(state["nodes"][0]["gpus"]) == 8
    assert all(slot["start"] + slot["span"] <= 8 for slot in slots)
    assert second.stop() == 0
    report = json.loads(smartmig(home, "replay", home / "journal.db", "--json").stdout)
    assert (report["n_different"], report["n_sessions"]) == (0, 2)
    for session, columns in (("1", "job_id,submit_s,run_s,n_gpus,"), ("2", "job_id,arrive_s,deadline_s,")):
        written = home / f"trace{session}.csv"
        done = smartmig(home, "journal", "export", home / "journal.db", "-o", written, "--session", session)
        assert done.returncode == 0, done.stderr
        assert written.read_text().startswith(columns)
    assert "decision" in smartmig(home, "journal", "show", home / "journal.db", "--kind", "decision").stdout


def test_tokens__are_hashed_at_rest(home: Path, tokens: dict[str, str]) -> None:
    raw = b"".join(path.read_bytes() for path in home.glob("journal.db*"))
    for token in tokens.values():
        assert token.partition(".")[2].encode() not in raw
    listed = json.loads(smartmig(home, "token", "list", "--json").stdout)
    assert [(one["name"], one["role"], one["revoked_s"] is None) for one in listed] == [
        ("ann", "operator", True),
        ("bob", "viewer", True),
        ("eve", "viewer", False),
        ("guest", "viewer", False),
    ]
    assert "there is, or was, a token" in smartmig(home, "token", "add", "eve").stderr


def test_serve__goes_on_though_nobody_reads_its_log(tmp_path: Path) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    silent = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # somebody holds it open, and reads nothing
    words = ("serve", "--no-api", "--mode", "act", "--adapter", "simulated:nodes=8x8,load=20,speedup=3600")
    environment = {**os.environ, "SMARTMIG_HOME": str(tmp_path)}
    with pipe.open("wb", buffering=0) as stream:
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 4096)
        daemon = subprocess.Popen([str(SMARTMIG), *words], env=environment, stderr=stream)
    try:
        journal = tmp_path / "journal.db"

        def seen(kind: str) -> list[dict[str, Any]]:
            if not journal.exists():
                return []
            done = smartmig(tmp_path, "journal", "show", journal, "--kind", kind, "--limit", 100_000, "--json")
            return [one["body"] for one in json.loads(done.stdout)] if done.returncode == 0 else []

        wait_until(lambda: sum("took_s" in body for body in seen("decision")) > 200, "decisions")
        assert smartmig(tmp_path, "kill").returncode == 0
        wait_until(lambda: [b["what"] for b in seen("audit")][-2:] == ["kill", "let go"], "letting go", 20)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20) == 0
    finally:
        daemon.kill()
        daemon.wait()
        os.close(silent)


def wait_until(happened: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    end_s = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < end_s, f"waited in vain for {what}"
        time.sleep(0.2)
