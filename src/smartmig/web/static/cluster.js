// GPUs drawn as their slots, nodes as their GPUs. Unchanged cards are left alone, so that hovering is not disturbed.

import {$, clock, count, make, put, scroller, span, table, watts} from "./format.js";

const late = (job, now_s) => job.deadline_s !== null && now_s > job.deadline_s;

const about = (job, now_s) =>
  `${job.key[0]}${job.user ? ` of ${job.user}` : ""}, since ${clock(job.start_s)}` +
  (job.ends_s === null ? "" : `, should end ${clock(job.ends_s)}`) +
  (job.deadline_s === null ? "" : `, ${late(job, now_s) ? "was" : "is"} due ${clock(job.deadline_s)}`) +
  (job.managed ? "" : ", not started by us");

const slot = (one, now_s) => {
  const state = one.job ? (late(one.job, now_s) ? "late" : "busy") : one.others ? "others" : one.usable ? "free" : "gone";
  const what = {free: "free", others: "held by others", gone: "not usable yet"}[state] ?? about(one.job, now_s);
  const box = make("li", {class: `slot ${state}`, title: `${one.profile}: ${what}`},
    make("span", {class: "job", "aria-hidden": "true", text: one.job ? one.job.key[0] : state === "others" ? "other" : ""}),
    make("span", {class: "profile", "aria-hidden": "true", text: one.profile.split(".")[0]}),
    make("span", {class: "unseen", text: `${one.profile}: ${what}`}));
  box.style.gridColumn = `${one.start + 1} / span ${one.span}`;
  return box;
};

const card = (node, gpu, now_s) => {
  const slots = make("ul", {class: "slots", "aria-label": `Slots of ${node.name} GPU ${gpu.gpu}`},
    ...gpu.slots.map((one) => slot(one, now_s)));
  slots.style.gridTemplateColumns = `repeat(${gpu.n_memory}, minmax(0, 1fr))`;
  const cut = gpu.slots.length ? gpu.slots.map((one) => one.profile.split(".")[0]).join(" ") : "not cut";
  return [make("h3", {}, `${node.name} GPU ${gpu.gpu}`, make("span", {class: "quiet", text: gpu.model})), slots,
    make("p", {class: "under"}, make("span", {text: cut}), make("span", {text: watts(gpu.watts)}))];
};

const whole = (node, now_s) => {
  const boxes = [];
  let n_ours = 0;
  for (const job of [...node.jobs].sort((a, b) => b.here - a.here)) {
    const text = `${count(job.here, "GPU")}: ${about(job, now_s)}`;
    const box = make("li", {class: `slot ${late(job, now_s) ? "late" : "busy"}`, title: text},
      make("span", {class: "job", "aria-hidden": "true", text: job.key[0]}), make("span", {class: "unseen", text}));
    box.style.gridColumn = `span ${Math.min(8, job.here)}`;
    boxes.push(box);
    n_ours += job.here;
  }
  const n_free = Math.max(0, Math.min(node.n_free, node.n_gpus - n_ours));
  const bare = (n, kind, text) => {
    for (let at = 0; at < n; at += 1) boxes.push(make("li", {class: `slot ${kind}`, title: text}, make("span", {class: "unseen", text})));
  };
  bare(node.n_gpus - n_ours - n_free, "others", "held by others");
  bare(n_free, "free", "free");
  const slots = make("ul", {class: "slots whole", "aria-label": `GPUs of ${node.name}`}, ...boxes);
  slots.style.gridTemplateColumns = `repeat(${Math.min(8, node.n_gpus)}, minmax(0, 1fr))`;
  const up = ["idle", "up", "ok"].includes(node.state);
  return [make("h3", {}, node.name, make("span", {class: "quiet", text: node.gpu_model})), slots,
    make("p", {class: "under"}, make("span", {text: `${n_free} of ${node.n_gpus} free`}), make("span", {class: up ? "" : "warn", text: node.state}))];
};

const MOST = 240;

export const drawCluster = (view) => {
  const cards = [];
  for (const node of view.nodes) {
    if (node.n_gpus > 0) cards.push([node.name, [node, lateMarks(node.jobs, view.time_s)], () => whole(node, view.time_s)]);
    for (const gpu of node.gpus) {
      const marks = lateMarks(gpu.slots.map((one) => one.job).filter(Boolean), view.time_s);
      cards.push([`${node.name} GPU ${gpu.gpu}`, [gpu, marks], () => card(node, gpu, view.time_s)]);
    }
  }
  const box = $("cards");
  const there = new Map([...box.children].map((one) => [one.dataset.name, one]));
  const shown = cards.slice(0, MOST).map(([name, key, draw]) => {
    const one = there.get(name) ?? make("article", {class: "card", "data-name": name, "aria-label": name});
    const text = JSON.stringify(key);
    if (one.dataset.key !== text) {
      one.dataset.key = text;
      one.replaceChildren(...draw());
    }
    there.delete(name);
    return one;
  });
  if (cards.length > MOST) shown.push(make("p", {class: "empty", text: `${cards.length - MOST} more are not drawn; the table lists every job.`}));
  if (!cards.length) shown.push(make("p", {class: "empty", text: "The cluster has no GPUs we know of."}));
  if (shown.length !== box.children.length || shown.some((one, at) => one !== box.children[at])) box.replaceChildren(...shown);
  if ($("running-details").open) runningTable(view);
};

const lateMarks = (jobs, now_s) => jobs.filter((job) => late(job, now_s)).map((job) => job.key[0]);

export const runningTable = (view) => {
  const rows = [];
  for (const node of view.nodes) {
    for (const job of node.jobs) rows.push([job, `${node.name}, ${count(job.here, "GPU")}`]);
    for (const gpu of node.gpus) for (const one of gpu.slots) if (one.job) rows.push([one.job, `${node.name} GPU ${gpu.gpu}, ${one.profile} at ${one.start}`]);
  }
  rows.sort((a, b) => a[0].start_s - b[0].start_s);
  table($("running"), "Running jobs", ["Job", "User", "Where", "Since", "Should end", "Due", "Late by"], rows.slice(0, 1000).map(([job, where]) => [
    job.key[0], job.user || "–", where, clock(job.start_s), job.ends_s === null ? "–" : clock(job.ends_s),
    job.deadline_s === null ? "–" : clock(job.deadline_s), late(job, view.time_s) ? span(view.time_s - job.deadline_s) : "–",
  ]));
};

export const drawQueue = (n_queued, jobs, now_s) => {
  const key = JSON.stringify([n_queued, jobs, Math.floor(now_s / 5)]);
  if (!n_queued) {
    put($("queue"), key, () => [make("p", {class: "empty", text: "Nobody waits."})]);
    return;
  }
  const mig = jobs.some((job) => job.n_gpus === 0);
  const rows = jobs.slice(0, 50).map((job) => [
    job.key[0], job.user || "–", job.n_gpus === 0 ? "a slice" : `${job.n_gpus}${job.gpu_model ? ` ${job.gpu_model}` : ""}`, span(job.waited_s),
    mig ? (job.deadline_s === null ? "–" : clock(job.deadline_s)) : span(job.limit_s),
  ]);
  const shown = rows.length < n_queued ? `, the first ${rows.length} shown` : "";
  put($("queue"), key, () => [make("p", {text: `${count(n_queued, "job")} by time of submission${shown}.`}),
    scroller("Waiting jobs", table(make("table"), "Waiting jobs", ["Job", "User", "Wants", "Waited", mig ? "Due" : "Limit"], rows))]);
};
