// Asks the server; holds the token; hears events and asks again when the server has been away.

const KEPT = "smartmig-token";

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (text) => sessionStorage.setItem(KEPT, text),
  drop: () => sessionStorage.removeItem(KEPT),
};

const detail = (body, status) => {
  const said = body && body.detail;
  if (typeof said === "string") return said;
  if (Array.isArray(said) && said.length) return `${(said[0].loc || []).slice(1).join(".")}: ${said[0].msg}`;
  return `the server answered ${status}`;
};

export const ask = async (path, wish) => {
  const about = {headers: {Authorization: `Bearer ${token.get() ?? ""}`}, signal: AbortSignal.timeout(20000)};
  if (wish !== undefined) {
    about.method = "POST";
    about.keepalive = true; // what somebody asked for is done though the page is left
    about.headers["Content-Type"] = "application/json";
    about.body = JSON.stringify(wish);
  }
  const answer = await fetch(path, about);
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, detail(body, answer.status));
  return body;
};

const lines = async function* (stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      const parts = (left + value).split("\n");
      left = parts.pop();
      yield* parts;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
};

// `heard(event, data)` for every event (`only`: of this kind), `up()` and `down()` when the connection comes and goes; returns how to end it.
// EventSource cannot send a token, and a cookie would outlive the tab.
export const listen = ({heard, up, down, only = ""}) => {
  let ended = false;
  let stop = null;
  const once = async () => {
    stop = new AbortController();
    const answer = await fetch(only ? `/events?only=${only}` : "/events", {headers: {Authorization: `Bearer ${token.get() ?? ""}`}, signal: stop.signal});
    if (!answer.ok) throw new Refused(answer.status, `the server answered ${answer.status}`);
    up();
    let event = "";
    for await (const line of lines(answer.body)) {
      if (line.startsWith("event: ")) event = line.slice(7);
      else if (line.startsWith("data: ")) heard(event, line.slice(6));
    }
  };
  const run = async () => {
    let wait_ms = 500;
    while (!ended) {
      try {
        await once();
        wait_ms = 500;
      } catch (error) {
        if (error instanceof Refused && error.status === 401) ended = true;
      }
      if (ended) return;
      down();
      await new Promise((go) => setTimeout(go, wait_ms));
      wait_ms = Math.min(5000, 1.6 * wait_ms);
    }
  };
  run();
  return () => {
    ended = true;
    stop?.abort();
  };
};
