// What was decided and why, what it is worth, what the guard refused.

import {$, action, clock, count, energy, fold, make, moment, number, percent, put, scroller, span, table, watts} from "./format.js";

const MOST = 12;

const list = (items, kind) => {
  const shown = items.slice(0, MOST).map((text) => make("li", {text}));
  if (items.length > MOST) shown.push(make("li", {class: "quiet", text: `and ${items.length - MOST} more`}));
  return make("ul", {class: kind}, ...shown);
};

const chosen = (plan) => {
  const places = new Map();
  for (const one of plan) if (one.start) for (const share of one.start.shares) places.set(`${one.start.key[0]} ${share.node} ${share.gpu ?? 0} ${share.start ?? 0}`, true);
  return (job, node, gpu = 0, start = 0) => places.has(`${job} ${node} ${gpu} ${start}`);
};

const mark = (is) => (is ? [make("strong", {text: "✓ "}), make("span", {class: "unseen", text: "chosen: "})] : []);

const queueScores = (jobs, took) => {
  const rows = jobs.flatMap((job) => {
    const first = [job.key[0], String(job.n_gpus), number(job.score)];
    if (!job.nodes.length) return [[...first, job.fits ? "no node by itself" : "does not fit now", "–"]];
    return job.nodes.slice(0, 4).map((one, at) => [
      at ? "" : first[0], at ? "" : first[1], at ? "" : first[2],
      [...mark(took(job.key[0], one.node)), `${one.node}, ${count(one.n_gpus, "GPU")}`], number(one.score),
    ]);
  });
  return scroller("Order of the queue and scores of the nodes",
    table(make("table", {class: "nodes"}), "Order of the queue and scores of the nodes", ["Job", "GPUs", "Rule's score", "Could go to", "Place's score"], rows));
};

const places = ({profile, places: [first, ...rest]}) =>
  `${profile} of ${first.node} GPU ${first.gpu}${rest.length ? ` or ${count(rest.length, "other")} like it` : ""}`;

const sliceScores = (jobs, took) => {
  const rows = jobs.flatMap((job) => {
    if (!job.options.length) return [[job.key[0], "no free slice fits", "–", "–", "–"]];
    return job.options.slice(0, 4).map((one, at) => [
      at ? "" : job.key[0], [...mark(one.places.some((at) => took(job.key[0], at.node, at.gpu, at.start))), places(one)],
      clock(one.done_s), one.late_s > 0 ? span(one.late_s) : "in time", energy(one.energy_j),
    ]);
  });
  return scroller("Free slices for the most urgent jobs",
    table(make("table", {class: "slices"}), "Free slices for the most urgent jobs", ["Job", "Slice", "Done", "Late by", "More energy"], rows));
};

const cutScores = (cuts) => scroller("How likely each cut is to become which",
  table(make("table", {class: "cuts"}), "How likely each cut is to become which", ["Cut now", "Next, by the policy's share"],
    cuts.map((one) => [one.cut, one.next.map((to) => `${to.cut} ${percent(to.share)}`).join(", ") || "stays"])));

const why = (name, title, text, inside) => fold(name, title, true, make("p", {class: "quiet", text}), inside);

const decided = (last) => {
  const plan = last.plan ?? [];
  const wanted = last.wanted ?? plan;
  const refused = last.refused ?? [];
  const took = chosen(plan);
  const about = [`Decision ${last.number ?? last.n}`, last.time_s ? `at ${clock(last.time_s)}` : "", `in mode ${last.mode}`,
    last.took_s ? `took ${(1000 * last.took_s).toFixed(2)} ms` : ""].filter(Boolean).join(", ");
  const acted = last.acted ?? last.acts;
  const did = !plan.length ? (wanted.length ? "The guard let nothing pass." : "Nothing to do.")
    : acted ? "Handed to the cluster:" : "Written down, not carried out:";
  const parts = [make("p", {text: `${about}.`}), make("p", {class: "lead", text: did}), plan.length ? list(plan.map(action), "plan") : null];
  if (last.fallback) parts.push(make("p", {class: "warn", text: `The plain rule decided instead: ${last.fallback}`}));
  parts.push(make("h3", {text: "The guard"}));
  parts.push(refused.length ? list(refused.map((one) => `${action(one.action)}: ${one.why}`), "refused")
    : make("p", {text: `Let ${wanted.length === 1 ? "the action" : `all ${wanted.length} actions`} pass.`}));
  const other = last.alternatives ?? {};
  if (other.slices?.length) parts.push(why("slices", "Why these slices", "Most urgent jobs first, then those that were started; what each kind of free slice would mean.", sliceScores(other.slices, took)));
  if (other.queue?.length) parts.push(why("queue", "Why these jobs and nodes", "The head of the queue in the rule's order, lowest score first, then the jobs that were started.", queueScores(other.queue, took)));
  if (other.cuts?.length) parts.push(why("cuts", "Why these cuts", "The learned policy's shares for the cuts now present.", cutScores(other.cuts)));
  return parts.filter(Boolean);
};

export const drawDecision = (last, mode) => {
  const text = mode === "observe" ? "In mode observe nothing is decided." : "Nothing has been decided yet.";
  if (last) put($("decision"), JSON.stringify([last]), () => decided(last));
  else put($("decision"), text, () => [make("p", {class: "empty", text})]);
};

const METRICS = [["Energy", "energy_j", energy, 1], ["Mean lateness", "mean_late_s", span, 0.05], ["Mean waiting", "mean_wait_s", span, 0.05]];

const against = (policy, baseline, name) => {
  const [ours, theirs] = [policy[name], baseline[name]];
  if (ours === null || theirs === null) return null;
  if (!(theirs > 0)) return ours > 0 ? "more" : "the same";
  const change = ours / theirs - 1;
  return Math.abs(change) < 0.0005 ? "the same" : `${percent(Math.abs(change))} ${change < 0 ? "less" : "more"}`;
};

const bars = (answer) => METRICS.map(([title, name, text, least]) => {
  const said = against(answer.policy, answer.baseline, name);
  if (said === null || Math.max(answer.policy[name], answer.baseline[name]) < least) return null;
  const most = Math.max(answer.policy[name], answer.baseline[name], 1e-12);
  const bar = (who, kind, value) => {
    const fill = make("span", {class: `fill ${kind}`});
    fill.style.width = `${(100 * value) / most}%`;
    return make("div", {class: "bar"}, make("span", {class: "who", text: who}), make("span", {class: "track"}, fill), make("span", {class: "value", text: text(value)}));
  };
  return make("div", {class: "measure"}, make("h3", {}, title, make("span", {class: said.endsWith("more") ? "warn" : "good", text: said})),
    bar("policy", "ours", answer.policy[name]), bar("baseline", "theirs", answer.baseline[name]));
}).filter(Boolean);

export const drawEffect = (answer) => {
  const box = $("effect");
  if (answer.why) {
    put(box, answer.why, () => [make("p", {class: "warn", text: `There is no comparison: ${answer.why}`})]);
    return;
  }
  if (!answer.policy || !answer.baseline || !answer.measured.n_jobs) {
    put(box, "none", () => [make("p", {class: "empty", text: "No job has finished yet; the comparison begins with the first."})]);
    return;
  }
  const row = (title, one, joules) => [title, String(one.n_jobs), span(one.mean_wait_s), span(one.mean_late_s), percent(one.late_frac), joules];
  put(box, JSON.stringify(answer), () => [
    make("p", {text: `${count(answer.measured.n_jobs, "finished job")}, simulated again under the policy and under a plain baseline: first come first served with backfill, MIG cards left as they are. An estimate.`}),
    ...bars(answer),
    scroller("Against the baseline", table(make("table"), "Against the baseline", ["", "Jobs", "Mean waiting", "Mean lateness", "Late", "Energy"], [
      row("really", answer.measured, energy(answer.energy_j || null)), row("policy", answer.policy, energy(answer.policy.energy_j)),
      row("baseline", answer.baseline, energy(answer.baseline.energy_j)),
    ])),
    make("p", {class: "quiet", text: "Energy by the cards' power curves; what really happened includes jobs that still run."}),
  ]);
};

export const drawTiles = (view, effect) => {
  const tiles = [["Time of the cluster", moment(view.time_s)], ["Running", view.n_running], ["Waiting", view.n_queued], ["Power", view.watts ? watts(view.watts) : "not known"]];
  if (effect) tiles.push(["Energy so far", effect.energy_j ? energy(effect.energy_j) : "not known"], ["Finished", effect.n_finished], ["Late", effect.n_late], ["Busy", percent(effect.busy_frac)]);
  const box = $("tiles");
  if (box.children.length !== tiles.length) box.replaceChildren(...tiles.map(([name]) => make("div", {}, make("dt", {text: name}), make("dd"))));
  tiles.forEach(([name, value], at) => {
    box.children[at].firstChild.textContent = name;
    box.children[at].lastChild.textContent = value;
  });
};

export const drawGuard = (answer) => {
  const newest = answer.refused.slice(-20).reverse();
  const rules = Object.entries(answer.rules).map(([name, value]) => `${name.replace(/_s$/, " (s)").replaceAll("_", " ")}: ${number(value)}`);
  put($("guard"), JSON.stringify(answer), () => [
    make("p", {text: `${count(answer.n_refused, "action")} refused and ${count(answer.n_fallbacks, "decision")} left to the plain rule since the start. Inputs of the last decision were ${answer.drift_checked ? "" : "not "}held against what a policy was trained on.`}),
    newest.length ? scroller("Newest refusals", table(make("table", {class: "refusals"}), "Newest refusals", ["At", "Action", "Why not"], newest.map((one) => [clock(one.time_s), action(one.action), one.why])))
      : make("p", {class: "empty", text: "Nothing has been refused."}),
    fold("rules", "Rules", false, list(rules, "rules")),
  ]);
};
