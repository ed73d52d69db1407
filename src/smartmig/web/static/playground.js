// The playground: sends a wish, follows its run, shows what came of it. /playground/ID is a run that can be linked.

import {Refused, ask, listen, token} from "./api.js";
import {figure, forget} from "./draw.js";
import {$, count, make, moment, put, scroller, span, table} from "./format.js";
import {startSession} from "./session.js";
import {describe, fill, read, startForm} from "./wish.js";

const EVERY_MS = 5000; // events tell of every step; this is for those that were missed
const now = {me: null, runs: [], shown: null, result: null, connected: true, trouble: ""};
let session = null;
let stopListening = () => {};

const say = (text) => {
  $("say").textContent = text;
};

const banner = () => {
  const away = document.body.dataset.view === "board" && now.trouble;
  document.body.dataset.state = away ? "stale" : "";
  const text = away ? `Stale: ${now.trouble}. Trying again; a run may go on meanwhile.` : "";
  if ($("banner").textContent !== text) $("banner").textContent = text;
  $("banner").className = away ? "stale" : "";
};

const failed = (error) => {
  if (error instanceof Refused && error.status === 401) session?.signOut();
  else {
    now.trouble = error instanceof Refused ? error.message : "the server does not answer";
    banner();
  }
};

// --- what is shown

const shown = () => now.runs.find((run) => run.id === now.shown) ?? null;

const took = (run) => (run.ended_s ? ` It ${run.status === "done" ? "took" : "had run for"} ${span(run.ended_s - run.began_s)}.` : "");

const begins = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;

// Until the first step is done nobody knows how far it is: rules may have to be compiled.
const steps = (run) => (run.total > 0 && run.done > 0 ? [run.done, run.total] : null);

const doing = (run) => `${begins(run.what)}${steps(run) ? `: ${run.done} of ${run.total}` : ""}.`;

const bar = (run) => {
  const known = steps(run);
  const box = make("progress", {max: known?.[1], value: known?.[0], "aria-label": "Progress of the run"});
  return [make("p", {class: "lead", text: `Running for ${run.who}: ${describe(run.wish)}.`}), box,
    make("div", {class: "under-bar"}, make("p", {id: "progress-text", text: doing(run)}),
      make("button", {type: "button", id: "cancel", text: "Cancel the run", onclick: cancel,
        disabled: now.me?.role !== "operator" && now.me?.name !== run.who}))];
};

const again = (run) => make("button", {type: "button", text: "Put it back into the form", onclick: () => {
  fill(run.wish);
  $("go").focus();
}});

const drawStatus = () => {
  const run = shown();
  const [box, busy] = [$("status"), now.runs.some((one) => one.status === "running")];
  $("go").disabled = busy;
  $("go").textContent = busy ? "A run is in progress" : "Run";
  if (run?.status === "running" && box.dataset.key === `running ${run.id}`) {
    // Only what moves is changed, so that the focus stays on the button.
    const progress = box.querySelector("progress");
    if (steps(run)) [progress.value, progress.max] = steps(run);
    $("progress-text").textContent = doing(run);
    return;
  }
  $("parts").hidden = run?.status !== "done";
  if (!run) {
    const missing = now.shown !== null;
    put(box, missing ? "missing" : "none", () => [make("p", {class: "empty", text: missing
      ? "There is no such run: it was removed, or the address is wrong. Start another one above."
      : "Nothing has been run yet. Choose policies above and press Run: days are simulated under each of them, and the comparison appears here."})]);
  } else if (run.status === "running") put(box, `running ${run.id}`, () => bar(run));
  else if (run.status === "done") {
    put(box, `done ${run.id}`, () => [make("p", {text: `${describe(run.wish)}; run by ${run.who}.${took(run)}`}),
      make("p", {class: "links"}, make("a", {href: `/playground/${run.id}/report`, target: "_blank", rel: "noopener", text: "Open the full report"}),
        make("a", {href: `/playground/${run.id}`, text: "Link to this result"}), again(run))]);
  } else {
    const title = {failed: "The run failed", cancelled: "The run was cancelled", interrupted: "The run was interrupted"}[run.status];
    put(box, `${run.status} ${run.id}`, () => [make("div", {class: `outcome ${run.status}`}, make("p", {class: "lead", text: `${title}.`}),
      make("p", {text: `${begins(run.detail.replace(/\.$/, ""))}.${took(run)}`}), again(run))]);
  }
};

const drawRuns = () => {
  if (!now.runs.length) {
    put($("runs"), "none", () => [make("p", {class: "empty", text: "None yet."})]);
    return;
  }
  const rows = now.runs.map((run) => [make("a", {href: `/playground/${run.id}`, text: moment(run.began_s), "aria-current": run.id === now.shown ? "true" : null,
    onclick: (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      open(run.id);
      $("run").focus();
    }}), run.status, run.who, describe(run.wish)]);
  put($("runs"), JSON.stringify(now.runs.map((run) => [run.id, run.status, run.id === now.shown])),
    () => [scroller("Runs so far", table(make("table", {class: "runs"}), "Runs so far", ["Begun (UTC)", "State", "By", "What"], rows))]);
};

const cells = (row) => row.map((cell) => {
  const [value, beside] = cell.split(" ± ");
  return beside ? [value, make("span", {class: "beside", text: ` ± ${beside}`})] : cell;
});

const part = (run, one, at) => {
  const inside = [make("h2", {id: `part-${at}`, text: one.title}), ...one.text.split("\n\n").filter(Boolean).map((text) => make("p", {text}))];
  if (one.rows) {
    const [headings, ...rows] = one.rows;
    const made = table(make("table", {class: "numbers"}), one.title, headings, rows.map(cells));
    made.tBodies[0].rows[one.strong_row ?? -1]?.classList.add("best");
    inside.push(scroller(one.title, made));
  }
  if (one.figure !== null) inside.push(figure(one.title, `/api/v1/playground/runs/${run.id}/figures/${one.figure}`, one.height_px, one.narrow_height_px));
  return make("section", {"aria-labelledby": `part-${at}`}, ...inside);
};

const drawResult = async () => {
  const run = shown();
  if (run?.status !== "done" || now.result === run.id) return;
  now.result = run.id;
  forget();
  try {
    const result = await ask(`/api/v1/playground/runs/${run.id}/result`);
    if (now.shown !== run.id) return;
    document.title = `${result.title} - smartmig playground`;
    const parts = result.parts.map((one, at) => part(run, one, at));
    parts[0]?.querySelector("h2").after(make("p", {class: "lead", text: result.intro}));
    if (result.scenario) {
      parts.push(make("section", {}, make("details", {}, make("summary", {text: "The same in a shell"}),
        make("p", {text: "Save this as scenario.yaml; `smartmig compare scenario.yaml` gives the same numbers."}),
        make("pre", {tabindex: "0", text: result.scenario}))));
    }
    $("parts").replaceChildren(...parts);
  } catch (error) {
    now.result = null;
    $("parts").replaceChildren(make("p", {class: "empty", text: `The result could not be loaded: ${error.message}.`}));
    failed(error);
  }
};

const draw = () => {
  banner();
  drawStatus();
  drawRuns();
  drawResult();
};

// --- which run is shown

const open = (id, add = true) => {
  if (id !== now.shown) {
    forget();
    $("parts").replaceChildren();
    now.result = null;
    document.title = "smartmig playground";
  }
  now.shown = id;
  if (add) history.pushState(null, "", id ? `/playground/${id}` : "/playground");
  const run = shown();
  if (run) fill(run.wish);
  draw();
};

const addressed = () => location.pathname.split("/")[2] || null;

addEventListener("popstate", () => {
  if (now.me) open(addressed(), false);
});

// --- asking

const look = async () => {
  if (document.hidden || !token.get() || !now.me) return;
  try {
    now.runs = await ask("/api/v1/playground/runs");
    now.trouble = "";
    // Somebody who comes while a run is in progress sees it.
    if (now.shown === null) now.shown = now.runs.find((run) => run.status === "running")?.id ?? null;
    draw();
  } catch (error) {
    failed(error);
  }
};

const told = {running: "", done: "The run is done; its result is below the form.", failed: "The run failed.", cancelled: "The run was cancelled.", interrupted: "The run was interrupted."};

const hear = (event, data) => {
  const heard = JSON.parse(data);
  const at = now.runs.findIndex((run) => run.id === heard.id);
  if (at < 0) {
    look();
    return;
  }
  now.runs[at] = {...now.runs[at], ...heard};
  if (heard.id === now.shown && heard.status !== "running") say(told[heard.status]);
  draw();
};

const cancel = async () => {
  try {
    await ask(`/api/v1/playground/runs/${now.shown}/cancel`, {});
    await look();
    $("run").focus();
  } catch (error) {
    if (error instanceof Refused && error.status !== 401) $("alert").textContent = `Not cancelled: ${error.message}`;
    else failed(error);
  }
};

$("wish").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("wish-error").textContent = $("alert").textContent = "";
  $("go").disabled = true;
  try {
    const run = await ask("/api/v1/playground/runs", read());
    now.runs.unshift(run);
    open(run.id);
    say("The run has begun.");
    $("run").scrollIntoView({block: "nearest"});
    $("run").focus({preventScroll: true});
  } catch (error) {
    if (error instanceof Refused && error.status !== 401) $("wish-error").textContent = `Not run: ${error.message}`;
    else if (error instanceof Refused) failed(error);
    else $("wish-error").textContent = "Not run: the server does not answer.";
    drawStatus();
  }
});

// A report is a page of its own, which a link opens without our header; no link stands there before its cookie does.
const letLinks = () => ask("/api/v1/login", {});

// What cookies are good for, a server that was started anew has forgotten.
const backAgain = async () => {
  await letLinks().catch(() => {});
  await look();
};

const entered = async (me) => {
  now.me = me;
  await letLinks();
  $("summary").textContent = "Policies tried in simulation; the live cluster is not touched.";
  startForm(await ask("/api/v1/playground"));
  now.shown = addressed();
  stopListening();
  let cut = false;
  stopListening = listen({
    heard: hear,
    only: "playground",
    up: () => cut ? backAgain() : look(),
    down: () => {
      cut = true;
      look();
    },
  });
  await look();
  const run = shown();
  if (run) fill(run.wish);
};

const left = () => {
  stopListening();
  forget();
  Object.assign(now, {me: null, runs: [], result: null, trouble: ""});
  $("parts").replaceChildren();
  banner();
};

document.addEventListener("visibilitychange", () => document.hidden || !now.me || backAgain());
setInterval(look, EVERY_MS);
session = startSession({entered, left, failed});
