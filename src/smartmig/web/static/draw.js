// Figures by plotly.js, which is fetched from this server when the first of them comes into view.

import {ask} from "./api.js";
import {make} from "./format.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 640px)");
const boxes = new Map(); // box -> address of its figure
let library = null;
let themes = null;

const load = () => {
  library ??= new Promise((done, failed) => {
    const script = make("script", {src: "/static/plotly.js"});
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => {
      library = null;
      script.remove();
      failed(new Error("plotly.js could not be fetched"));
    });
    document.head.append(script);
  });
  return library;
};

const put = (into, path, value) => {
  const keys = path.split(".");
  const last = keys.pop();
  for (const key of keys) into = into[key] ??= {};
  into[last] = value;
};

const draw = async (box) => {
  const path = boxes.get(box);
  try {
    const [Plotly, figure, looks] = await Promise.all([load(), ask(path), themes ?? ask("/api/v1/playground/themes")]);
    themes = looks;
    if (!boxes.has(box)) return;
    const layout = {...figure.layout, template: dark.matches ? themes.dark : themes.light};
    const phone = layout.meta?.phone;
    if (phone && narrow.matches) {
      for (const [key, value] of Object.entries(phone.layout ?? {})) put(layout, key, value);
      for (const trace of figure.data) for (const [key, value] of Object.entries(phone.data ?? {})) put(trace, key, value);
    }
    // What a report needs to draw single jobs on zooming in is of no use here.
    if (layout.meta?.zoom) {
      delete layout.meta.zoom;
      if (!box.dataset.drawn) box.after(make("p", {class: "quiet", text: "Single jobs, on zooming in, are in the full report."}));
    }
    box.replaceChildren();
    await Plotly.newPlot(box, figure.data, layout, {
      responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    });
    box.dataset.drawn = "yes";
    box.removeAttribute("aria-busy");
  } catch (error) {
    if (!boxes.has(box)) return;
    box.replaceChildren(make("p", {class: "empty"}, `The figure could not be drawn: ${error.message}. `,
      make("button", {type: "button", class: "link", text: "Try again", onclick: () => draw(box)})));
  }
};

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    draw(entry.target);
  }
}, {rootMargin: "300px 0px"});

export const figure = (title, path, height_px, narrow_height_px) => {
  const box = make("div", {class: "plot", role: "group", "aria-label": title, "aria-busy": "true"}, make("p", {class: "quiet", text: "Loading the figure."}));
  box.style.setProperty("--tall", `${height_px}px`);
  box.style.setProperty("--tall-narrow", `${narrow_height_px}px`);
  boxes.set(box, path);
  watcher.observe(box);
  return box;
};

// Plotly keeps what it drew until it is told.
export const forget = () => {
  for (const box of boxes.keys()) {
    watcher.unobserve(box);
    if (box.dataset.drawn) window.Plotly.purge(box);
  }
  boxes.clear();
};

const again = () => [...boxes.keys()].filter((box) => box.dataset.drawn).forEach(draw);
dark.addEventListener("change", again);
narrow.addEventListener("change", again);
