// Numbers and times as people read them, and elements from data.

export const make = (name, about = {}, ...children) => {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") one.className = value;
    else if (key === "text") one.textContent = value;
    else if (key.startsWith("on")) one.addEventListener(key.slice(2), value);
    else one.setAttribute(key, value === true ? "" : value);
  }
  one.append(...children.filter((child) => child !== null && child !== undefined));
  return one;
};

export const $ = (id) => document.getElementById(id);

export const clock = (time_s) => new Date(time_s * 1000).toISOString().slice(11, 19);

export const moment = (time_s) => new Date(time_s * 1000).toISOString().slice(0, 19).replace("T", " ");

export const span = (seconds) => {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.abs(seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 100) return `${s.toFixed(0)} s`;
  if (s < 5400) return `${(s / 60).toFixed(s < 600 ? 1 : 0)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${(s / 86400).toFixed(1)} d`;
};

export const energy = (joules) => {
  if (joules === null || joules === undefined) return "–";
  const kwh = joules / 3.6e6;
  if (kwh >= 1000) return `${(kwh / 1000).toFixed(2)} MWh`;
  return kwh >= 0.1 ? `${kwh.toFixed(2)} kWh` : `${(kwh * 1000).toFixed(1)} Wh`;
};

export const watts = (value) => (value >= 10000 ? `${(value / 1000).toFixed(1)} kW` : `${value.toFixed(0)} W`);

export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

export const number = (value) =>
  typeof value !== "number" ? String(value ?? "–") : Math.abs(value) >= 1e9 ? value.toExponential(2) : +value.toPrecision(4);

export const count = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

export const action = (body) => {
  const [verb, what] = Object.entries(body ?? {})[0] ?? ["", {}];
  const where = (share) =>
    share.n_gpus ? `${count(share.n_gpus, "GPU")} of ${share.node}` : `${share.node} GPU ${share.gpu ?? 0}, slice ${share.start ?? 0}`;
  if (verb === "start") return `Start ${what.key[0]} on ${what.shares.map(where).join(" and ")}`;
  if (verb === "stop") return `Stop ${what.key[0]}`;
  if (verb === "repartition") {
    const cut = (what.layout ?? []).map(([, profile]) => profile).join(" + ");
    return `Cut ${what.node} GPU ${what.gpu ?? 0} into ${cut || "nothing"}`;
  }
  return "The whole plan";
};

export const table = (into, caption, headings, rows) => {
  into.replaceChildren(
    make("caption", {text: caption}),
    make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", {scope: "col", text})))),
    make("tbody", {}, ...rows.map(([first, ...rest]) => make("tr", {},
      make("th", {scope: "row"}, ...[first].flat()), ...rest.map((cell) => make("td", {}, ...[cell].flat()))))),
  );
  return into;
};

// Children that stay are left where they are: an element that is taken out and put in again loses the focus, and how far
// it was scrolled.
const fill = (into, ...children) => {
  const staying = new Set(children);
  for (const one of [...into.childNodes]) if (!staying.has(one)) one.remove();
  let next = into.firstChild;
  for (const one of children) {
    if (one === next) next = next.nextSibling;
    else into.insertBefore(one, next);
  }
  return into;
};

const kept = new Map(); // name -> element, made once

const keep = (name, made) => {
  if (!kept.has(name)) kept.set(name, made());
  return kept.get(name);
};

export const scroller = (label, inside) =>
  fill(keep(`scroller ${label}`, () => make("div", {class: "scroll", role: "region", tabindex: "0", "aria-label": label})), inside);

export const fold = (name, title, open, ...inside) => {
  const one = keep(`fold ${name}`, () => make("details", {"data-name": name, open}, make("summary", {text: title})));
  return fill(one, one.firstChild, ...inside);
};

// `children()` is asked for only when the key, what they are made from, is another one.
export const put = (into, key, children) => {
  if (into.dataset.key === key) return;
  into.dataset.key = key;
  fill(into, ...children());
};
