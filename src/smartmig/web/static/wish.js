// The form of a wish: what can be chosen comes from the server, and so does every refusal.

import {$, count, make} from "./format.js";

let choices = null;
let n_rows = 0;

const world = () => document.querySelector("#world input:checked").value;

const options = (list, chosen) => list.map((one) =>
  make("option", {value: one.id ?? one, selected: (one.id ?? one) === chosen, title: one.about, text: one.id ?? one}));

const about = (list, id) => list.find((one) => one.id === id)?.about ?? "";

const select = (name, label, list, chosen, told) => {
  const box = make("select", {"data-name": name, "aria-label": label, onchange: told}, ...options(list, chosen));
  return box;
};

const value = (row, name) => row.querySelector(`[data-name=${name}]`)?.value;

// One policy: its selects, what they mean, and a way to remove it.
const row = (policy) => {
  const number = (n_rows += 1);
  const line = make("li", {class: "policy", "data-world": world()});
  const told = () => {
    const joint = choices.pairs.includes(value(line, "placement"));
    const cut = line.querySelector("[data-name=repartition]");
    if (cut) cut.disabled = joint;
    const said = world() === "mig"
      ? [joint ? "Placing and cutting trained together." : about(choices.placements, value(line, "placement")), joint ? "" : about(choices.repartitions, value(line, "repartition"))]
      : [about(choices.selections, value(line, "selection")), about(choices.allocations, value(line, "allocation")), about(choices.backfills, value(line, "backfill"))];
    line.querySelector(".quiet").textContent = said.filter(Boolean).join(" ");
  };
  const remove = make("button", {type: "button", class: "link", text: "Remove", onclick: () => {
    const next = line.nextElementSibling ?? line.previousElementSibling;
    line.remove();
    relabel();
    (next?.querySelector("select") ?? $("more")).focus();
  }});
  if (world() === "mig") {
    const placing = select("placement", "Placement", choices.placements, policy.pair ?? policy.placement, told);
    placing.append(make("optgroup", {label: "trained together"}, ...options(choices.pairs, policy.pair)));
    line.append(placing, select("repartition", "Repartition", choices.repartitions, policy.repartition, told));
  } else {
    line.append(select("selection", "Selection", choices.selections, policy.selection, told),
      select("allocation", "Allocation", choices.allocations, policy.allocation, told),
      select("backfill", "Backfill", choices.backfills, policy.backfill, told));
  }
  line.append(remove, make("p", {class: "quiet", id: `about-${number}`}));
  for (const one of line.querySelectorAll("select")) one.setAttribute("aria-describedby", `about-${number}`);
  $("policies").append(line);
  told();
  relabel();
};

const relabel = () => {
  const lines = [...$("policies").children];
  lines.forEach((line, at) => {
    for (const one of line.querySelectorAll("select")) {
      const name = one.dataset.name;
      one.setAttribute("aria-label", `${name[0].toUpperCase()}${name.slice(1)} of policy ${at + 1}`);
    }
    const remove = line.querySelector("button");
    remove.setAttribute("aria-label", `Remove policy ${at + 1}`);
    remove.disabled = lines.length === 1;
  });
  $("more").disabled = lines.length >= choices.most.policies;
  notes();
};

const notes = () => {
  const load = +$("load").value;
  if (world() === "mig") {
    const jobs = Math.round(choices.jobs_per_multiplier * load);
    $("load-note").textContent = load > 0 ? `About ${jobs.toLocaleString("en")} jobs a day; 20 loads eight A100s.` : "";
    $("days-note").textContent = `Up to ${choices.most.days}; every policy runs each of them.`;
  } else {
    $("load-note").textContent = "1 keeps about 70 % of the GPUs busy.";
    $("days-note").textContent = `Seeds of made-up requested times, up to ${choices.most.days}.`;
  }
};

const wear = (name) => {
  for (const one of document.querySelectorAll("#wish .fields [data-world]")) one.hidden = one.dataset.world !== name;
  $("load-label").textContent = name === "mig" ? "Load (multiplier)" : "Load";
  $("days-label").textContent = name === "mig" ? "Days" : "Seeds";
};

// Shows a wish in the form.
export const fill = (wish) => {
  document.querySelector(`#world input[value=${wish.world}]`).checked = true;
  wear(wish.world);
  $("days").value = wish.days;
  if (wish.world === "mig") {
    const [[n, gpu], [more_n, more] = [0, "h100-80gb"]] = wish.gpus.split(",").map((one) => one.split("x", 2).map((part) => part.trim()));
    [$("n-gpus").value, $("n-gpus-more").value, $("load").value] = [n, more_n, wish.multiplier];
    $("gpu").replaceChildren(...options(choices.gpus, gpu));
    $("gpu-more").replaceChildren(...options(choices.gpus, more));
    document.querySelector(`#recut input[value=${wish.recut}]`).checked = true;
    $("preempt").checked = wish.preempt;
  } else {
    [$("n-nodes").value, $("n-each").value] = wish.nodes.split("x");
    $("load").value = wish.load;
  }
  $("policies").replaceChildren();
  wish.policies.forEach(row);
};

// The form as a wish.
export const read = () => {
  const lines = [...$("policies").children];
  const days = +$("days").value;
  if (world() === "gang") {
    return {world: "gang", nodes: `${$("n-nodes").value}x${$("n-each").value}`, load: +$("load").value, days,
      policies: lines.map((line) => ({selection: value(line, "selection"), allocation: value(line, "allocation"), backfill: value(line, "backfill")}))};
  }
  const more = +$("n-gpus-more").value ? `,${$("n-gpus-more").value}x${$("gpu-more").value}` : "";
  return {world: "mig", gpus: `${$("n-gpus").value}x${$("gpu").value}${more}`, multiplier: +$("load").value, days,
    recut: document.querySelector("#recut input:checked").value, preempt: $("preempt").checked,
    policies: lines.map((line) => {
      const placement = value(line, "placement");
      return choices.pairs.includes(placement) ? {pair: placement} : {placement, repartition: value(line, "repartition")};
    })};
};

export const describe = (wish) => wish.world === "mig"
  ? `${wish.gpus}, load ${wish.multiplier}, ${count(wish.days, "day")}, ${count(wish.policies.length, "policy", "policies")}`
  : `${wish.nodes} whole GPUs, load ${wish.load}, ${count(wish.days, "seed")}, ${count(wish.policies.length, "policy", "policies")}`;

export const startForm = (offered) => {
  if (choices) return;
  choices = offered;
  fill(choices.first.mig);
  $("world").addEventListener("change", () => fill(choices.first[world()]));
  $("load").addEventListener("input", notes);
  $("more").addEventListener("click", () => {
    const taken = new Set(read().policies.map((one) => JSON.stringify(one)));
    // One that is not there yet: two of the same are refused.
    const fresh = world() === "mig"
      ? choices.repartitions.flatMap((cut) => choices.placements.map((place) => ({placement: place.id, repartition: cut.id})))
      : choices.backfills.flatMap((behind) => choices.selections.map((next) => ({selection: next.id, allocation: "best-fit", backfill: behind.id})));
    row(fresh.find((one) => !taken.has(JSON.stringify(one))));
    $("policies").lastChild.querySelector("select").focus();
  });
};
