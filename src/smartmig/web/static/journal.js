// Search in the journal, and travel through the states it holds.

import {ask} from "./api.js";
import {$, action, count, make, moment, scroller, table} from "./format.js";

const EVENTS = ["boot", "decision", "outcome", "memory", "audit", "error"];
const LIMIT = 100;

const idle = ({kind, body}) => kind === "decision" && !body.plan?.length && !body.refused?.length;

const told = ({kind, body}) => {
  if (kind === "boot") return `smartmig ${body.version ?? ""} began in mode ${body.mode} on ${body.adapter}`;
  if (kind === "decision") {
    const parts = (body.plan ?? []).slice(0, 3).map(action);
    const more = (body.plan ?? []).length - parts.length;
    const refused = (body.refused ?? []).length;
    return `${parts.join("; ") || "nothing to do"}${more > 0 ? ` and ${more} more` : ""}${refused ? `; ${count(refused, "action")} refused` : ""}`;
  }
  if (kind === "outcome") {
    const failed = body.outcomes.filter((one) => !one.done);
    return `decision ${body.n}: ${body.outcomes.length - failed.length} of ${count(body.outcomes.length, "action")} done${failed.length ? `; ${failed[0].why}` : ""}`;
  }
  if (kind === "audit") {
    const rest = Object.entries(body).filter(([name]) => !["who", "what"].includes(name)).map(([name, value]) => `${name} ${value}`);
    return `${body.who}: ${body.what}${rest.length ? ` (${rest.join(", ")})` : ""}`;
  }
  if (kind === "error") return body.what;
  if (kind === "state") return "full" in body ? "the whole state" : "what changed";
  return "the policy's memory";
};

let goTo = () => {};
let wish = {text: "", kind: ""};
let found = [];
let oldest = null;

const draw = (more) => {
  const rows = found.map((record) => [
    make("button", {type: "button", class: "link", text: String(record.seq), "aria-label": `Show the cluster at record ${record.seq}`, onclick: () => goTo(record.seq)}),
    [make("span", {class: "date", text: `${moment(record.time_s).slice(0, 10)} `}), moment(record.time_s).slice(11)], record.kind,
    make("details", {}, make("summary", {text: told(record)}), make("pre", {role: "region", tabindex: "0", "aria-label": `Record ${record.seq}`, text: JSON.stringify(record.body, null, 1).slice(0, 20000)})),
  ]);
  const box = $("found");
  if (!rows.length) {
    box.replaceChildren(make("p", {class: "empty", text: wish.text ? `No record holds “${wish.text}”.` : "No record of this kind."}));
    return;
  }
  box.replaceChildren(
    make("p", {text: `${count(rows.length, "record")}, newest first. A number shows the cluster as it was then.`}),
    scroller("Records", table(make("table", {class: "records"}), "Records", ["Record", "Time", "Kind", "What"], rows)),
    more ? make("button", {type: "button", id: "older", text: "Older", onclick: () => search(true)}) : "",
  );
};

const search = async (older, asked = true) => {
  const mine = wish;
  const query = new URLSearchParams({newest: "true", limit: String(LIMIT), text: wish.text});
  for (const kind of wish.kind ? [wish.kind] : EVENTS) query.append("kind", kind);
  if (older && oldest) query.set("before", oldest);
  try {
    const got = await ask(`/api/v1/journal?${query}`);
    if (mine !== wish) return; // an older wish may take longer than a newer one
    oldest = got.at(-1)?.seq ?? oldest;
    // Most turns find nothing to do; those who ask for decisions or search see them all the same.
    const told = wish.kind || wish.text ? got : got.filter((record) => !idle(record));
    found = older ? [...found, ...told] : told;
    draw(got.length === LIMIT);
    if (asked) $("say").textContent = `${count(found.length, "record")} found.`;
  } catch (error) {
    if (mine !== wish) return;
    $("found").replaceChildren(make("p", {class: "warn", text: `The journal could not be read: ${error.message}`}));
  }
};

export const startJournal = () => {
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    wish = {text: $("text").value.trim(), kind: $("kind").value};
    search(false);
  });
};

export const showJournal = () => search(false, false);

// `show(recorded)` with a state of the past, `show(null)` for now.
export const startTravel = (show, fail) => {
  const [slider, text] = [$("moment"), $("moment-text")];
  let at = null;
  let here = null;
  let asking = false;
  const go = async () => {
    if (asking || at === null) return;
    asking = true;
    try {
      // While one answer is under way the slider may have moved on: only the newest place counts.
      while (at !== null && (here === null || here.at !== at)) {
        const want = at;
        const got = await ask(`/api/v1/journal/state?at=${want}`);
        if (at === null) break;
        if (got === null) {
          text.textContent = "no state was recorded before this";
          here = {at: want};
        } else {
          here = {...got, at: want};
          text.textContent = `${moment(got.time_s)}, record ${got.seq}`;
          slider.setAttribute("aria-valuetext", text.textContent);
          show(got);
        }
      }
      $("earlier").disabled = !here?.earlier;
      $("later").disabled = !here?.later;
    } catch (error) {
      text.textContent = "could not be read";
      fail(error);
      here = null;
    } finally {
      asking = false;
    }
  };
  const to = (seq) => {
    at = seq;
    slider.value = seq;
    $("now").hidden = false;
    go();
  };
  const now = () => {
    if ($("now").contains(document.activeElement)) slider.focus();
    at = here = null;
    slider.value = slider.max;
    text.textContent = "now";
    slider.setAttribute("aria-valuetext", "now");
    $("now").hidden = true;
    $("earlier").disabled = false;
    $("later").disabled = true;
    show(null);
  };
  slider.addEventListener("input", () => to(Number(slider.value)));
  $("now").addEventListener("click", now);
  $("earlier").addEventListener("click", () => to(here?.earlier ?? Number(slider.max) - 1));
  $("later").addEventListener("click", () => here?.later && to(here.later));
  $("travel").addEventListener("submit", (event) => event.preventDefault());
  goTo = (seq) => {
    to(seq);
    $("cluster-title").scrollIntoView();
    slider.focus({preventScroll: true});
  };
  now();
  return {
    now,
    reach: (known) => {
      if (!known) return;
      slider.min = known.first;
      slider.max = known.newest;
      if (at === null) slider.value = known.newest;
    },
  };
};
