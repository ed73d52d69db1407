// Wires the page: signs in, asks for what is shown, hears events, passes on what an operator asks for. It decides nothing.

import {Refused, ask, listen, token} from "./api.js";
import {drawCluster, drawQueue, runningTable} from "./cluster.js";
import {$, clock} from "./format.js";
import {showJournal, startJournal, startTravel} from "./journal.js";
import {drawDecision, drawEffect, drawGuard, drawTiles} from "./panels.js";
import {startSession} from "./session.js";

const EVERY_MS = 1000; // events may come by the hundred a second; eyes do not
const SLOW_MS = 10000;
const STALE_MS = 8000;

const now = {me: null, state: null, effect: null, health: null, past: null, fresh_ms: 0, connected: false, trouble: "", part: ""};
let travel = null;
let session = null;
let stopListening = () => {};
let wanted = true; // something happened since the last look
let looking = false;
let slow_ms = 0;
let changing = 0; // changes under way
let n_changes = 0; // begun and ended so far: a state that was asked for before one of them is old

const say = (text) => {
  $("say").textContent = text;
};

// --- what is shown

const banner = () => {
  const [box, away_ms] = [$("banner"), Date.now() - now.fresh_ms];
  let [kind, text] = ["", ""];
  if (document.body.dataset.view !== "board") [kind, text] = ["", ""];
  else if (now.fresh_ms && away_ms > STALE_MS) {
    [kind, text] = ["stale", `Stale: the server has not answered since ${new Date(now.fresh_ms).toLocaleTimeString()}. Trying again; what you see is from then.`];
  } else if (!now.fresh_ms && now.trouble) [kind, text] = ["stale", `Nothing to show yet: ${now.trouble}. Trying again.`];
  else if (now.health?.status === "killed") [kind, text] = ["killed", "The kill switch is on: the cluster schedules by itself until somebody resumes."];
  else if (now.health?.status === "degraded") [kind, text] = ["degraded", `Degraded: ${now.health.detail || "the controller is stopping"}.`];
  else if (now.trouble || now.part) [kind, text] = ["degraded", `Part of the page could not be loaded: ${now.trouble || now.part}. Trying again.`];
  else if (now.past) [kind, text] = ["past", `You look at the past: ${clock(now.past.time_s)}, record ${now.past.seq}. Control acts on the present.`];
  document.body.dataset.state = kind;
  if (box.textContent !== text) {
    box.textContent = text;
    box.className = kind;
  }
};

// Nothing can be changed before it is known what there is to change.
const controls = () => {
  const {state, me} = now;
  const may = state !== null && me?.role === "operator";
  for (const one of document.querySelectorAll("#modes input, #pause, #kill")) one.disabled = !may;
  if (!state || !me) {
    $("control-note").textContent = "";
    return;
  }
  if (!$("sure").open && !changing) {
    for (const one of document.querySelectorAll("#modes input")) one.checked = one.value === state.mode;
    const held = document.querySelector("#modes input:checked");
    // Arrows go on from where the focus is: it stays with what holds.
    if ($("modes").contains(document.activeElement) && document.activeElement !== held) held?.focus({preventScroll: true});
  }
  $("pause").textContent = state.paused ? "Resume" : "Pause";
  $("kill").textContent = state.killed ? "Take the kill switch back" : "Kill switch";
  $("kill").classList.toggle("danger", !state.killed);
  const charge = state.in_charge ? "smartmig schedules the cluster" : "the cluster schedules by itself";
  const paused = state.paused ? ", paused" : "";
  $("control-note").textContent = `Now ${charge}${paused}.${may ? "" : " Your token may look; changes need one with the role operator."}`;
  $("summary").textContent = `Mode ${state.mode}${paused}: ${charge}.`;
};

const draw = () => {
  const view = now.past ?? now.state;
  if (!view) return;
  drawCluster(view);
  drawTiles(view, now.past ? null : now.effect);
  $("cluster-title").textContent = now.past ? "Cluster, as recorded" : "Cluster";
  $("decision-title").textContent = now.past ? "Decision, as recorded" : "Last decision";
  if (now.past) {
    drawQueue(now.past.n_queued, now.past.queue, now.past.time_s);
    drawDecision(now.past.decision && {time_s: now.past.time_s, ...now.past.decision}, "observe");
  }
  controls();
  banner();
};

// --- asking

const failed = (error) => {
  if (error instanceof Refused && error.status === 401) {
    session?.signOut();
    return;
  }
  now.trouble = error instanceof Refused ? error.message : "the server does not answer";
  banner();
};

// What takes long to make is asked for now and then; a part that fails leaves the others as they are.
const lookSlowly = async () => {
  const asked = await Promise.allSettled([ask("/api/v1/effect"), ask("/api/v1/guard")]);
  const [effect, guard] = asked.map((one) => one.value);
  if (effect) drawEffect(now.effect = effect);
  if (guard) drawGuard(guard);
  const refused = asked.find((one) => one.reason)?.reason;
  now.part = refused instanceof Refused ? refused.message : refused ? "the server does not answer" : "";
  if (refused?.status === 401) failed(refused);
};

const look = async () => {
  if (looking || document.hidden || !token.get() || document.body.dataset.view !== "board") return;
  looking = true;
  try {
    const late = Date.now() - slow_ms > SLOW_MS;
    if (wanted || late || (now.trouble && !now.state)) {
      wanted = false;
      const before = n_changes;
      const {health, state, queue, plan, span} = await ask("/api/v1/board");
      now.health = health;
      if (before === n_changes) now.state = state;
      else wanted = true;
      if (!now.past) {
        drawQueue(queue.n_queued, queue.jobs, queue.time_s);
        drawDecision(plan, state.mode);
      }
      travel.reach(span);
    } else now.health = await ask("/health");
    now.fresh_ms = Date.now();
    now.trouble = "";
    draw();
    if (late) {
      slow_ms = Date.now();
      await lookSlowly();
      draw();
    }
  } catch (error) {
    wanted = true;
    failed(error);
  } finally {
    looking = false;
  }
};

const hear = (event, data) => {
  wanted = true;
  if (event === "audit") {
    const body = JSON.parse(data);
    say(`${body.who}: ${body.what}${body.to ? ` ${body.to}` : ""}`);
  }
};

// --- signing in and out

const entered = async (me) => {
  now.me = me;
  slow_ms = now.fresh_ms = 0;
  wanted = true;
  stopListening();
  stopListening = listen({
    heard: hear,
    up: () => {
      if (!now.connected) {
        say("Connected.");
        showJournal();
      }
      now.connected = wanted = true;
    },
    down: () => {
      if (now.connected) say("The connection was lost; trying again.");
      now.connected = false;
      wanted = true;
    },
  });
  await look();
};

const left = () => {
  stopListening();
  now.me = now.state = now.effect = now.past = null;
  now.connected = false;
  $("sure").close();
  travel.now();
  controls();
  banner();
};

// --- what an operator asks for

const sure = (title, text, yes, withReason) => new Promise((answer) => {
  const dialog = $("sure");
  $("sure-title").textContent = title;
  $("sure-text").textContent = text;
  $("sure-yes").textContent = yes;
  $("sure-yes").classList.toggle("danger", withReason);
  $("sure-why").hidden = !withReason;
  $("why").value = "";
  dialog.returnValue = "no";
  dialog.addEventListener("close", () => answer(dialog.returnValue === "yes" ? $("why").value.trim() || "asked for on the page" : null), {once: true});
  dialog.showModal();
  $("sure-no").focus(); // an Enter too many changes nothing
});

// Enter after the reason leads to the button that acts; it does not press it.
$("why").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  $("sure-yes").focus();
});

// The form would send itself to the server by form-action; the dialog closes without.
$("sure-form").addEventListener("submit", (event) => {
  event.preventDefault();
  $("sure").close(event.submitter?.value ?? "no");
});

const send = async (path, wish) => {
  changing += 1;
  n_changes += 1;
  try {
    return await ask(path, wish);
  } finally {
    changing -= 1;
    n_changes += 1;
  }
};

const change = async (path, wish, done) => {
  $("alert").textContent = "";
  try {
    const answer = await send(path, wish);
    if (now.state) Object.assign(now.state, answer);
    say(done);
    wanted = true;
    controls();
    await look();
  } catch (error) {
    if (error instanceof Refused && error.status !== 401) $("alert").textContent = `Not done: ${error.message}`;
    else if (error instanceof Refused) failed(error);
    else $("alert").textContent = "Not done, or not known to be: the server does not answer.";
    controls();
  }
};

$("modes").addEventListener("change", async (event) => {
  const mode = event.target.value;
  const go = mode !== "act" || await sure("Switch to act?", "smartmig will hold waiting jobs and start them by its own plans.", "Switch to act", false);
  if (go) await change("/api/v1/mode", {mode}, `Mode ${mode}.`);
  else controls();
});
$("pause").addEventListener("click", () =>
  now.state?.paused ? change("/api/v1/resume", {}, "Resumed.") : change("/api/v1/pause", {}, "Paused."));
$("kill").addEventListener("click", async () => {
  if (!now.state) return;
  if (now.state.killed) {
    if (await sure("Take the kill switch back?", "In mode act smartmig schedules again from the next turn on.", "Take it back", false)) await change("/api/v1/resume", {}, "The kill switch is off.");
    return;
  }
  const why = await sure("Throw the kill switch?", "The cluster gets its own scheduling back at once and every job we hold is released.", "Throw the kill switch", true);
  if (why) await change("/api/v1/kill", {why}, "The kill switch is on.");
});

// --- begin

startJournal();
travel = startTravel((recorded) => {
  now.past = recorded;
  wanted = true;
  draw();
  if (!recorded) look();
}, failed);
$("running-details").addEventListener("toggle", () => {
  const view = now.past ?? now.state;
  if (view && $("running-details").open) runningTable(view);
});
document.addEventListener("visibilitychange", () => look());
setInterval(look, EVERY_MS);
setInterval(banner, EVERY_MS);

session = startSession({entered, left, failed});
