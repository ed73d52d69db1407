// Draws the figures of a report when they come into view, in the reader's colour scheme, and the jobs of a timeline's
// window when they are few enough. The page holds everything: nothing is asked of any server.
(() => {
  "use strict";
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  const boxes = [...document.querySelectorAll(".plot")];
  const drawn = new Set();
  const windows = new WeakMap();  // where the reader has zoomed to, kept when a figure is drawn again
  const put = (into, path, value) => {
    const keys = path.split(".");
    const last = keys.pop();
    for (const key of keys) into = into[key] ??= {};
    into[last] = value;
  };
  const draw = (box, onPaper) => {
    const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
    const layout = figure.layout;
    layout.template = dark.matches && !onPaper ? themes.dark : themes.light;
    const zoom = layout.meta && layout.meta.zoom;
    const phone = layout.meta && layout.meta.phone;
    if (phone && (narrow.matches || onPaper)) {
      for (const [path, value] of Object.entries(phone.layout || {})) put(layout, path, value);
      for (const trace of figure.data) {
        for (const [path, value] of Object.entries(phone.data || {})) put(trace, path, value);
      }
    }
    if (!onPaper && windows.has(box)) {
      for (const [axis, range] of Object.entries(windows.get(box))) layout[axis].range = range;
    }
    if (onPaper) {
      layout.width = 680;  // A4 and Letter between their margins
      layout.height = Math.min(layout.height, 780);
    }
    if (layout.meta) delete layout.meta.zoom;
    box.style.minHeight = "0";
    drawn.add(box);
    const plotted = Plotly.newPlot(box, figure.data, layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: narrow.matches ? false : "hover",
      // No button may send the reader's data anywhere.
      plotlyServerURL: "",
      modeBarButtonsToRemove: [
        "sendChartToCloud", "sendDataToCloud", "select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d",
      ],
    });
    if (zoom && !onPaper) plotted.then(() => follow(box, zoom));
  };

  // --- the timeline: a picture of the day, and the jobs themselves once a window holds few of them

  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };
  const integers = async (text, n) => {
    const raw = new Uint8Array(await inflate(text));
    const values = new Uint32Array(n);
    let value = 0;
    for (let i = 0; i < n; i += 1) {
      value = (value + raw[i] + raw[n + i] * 0x100 + raw[2 * n + i] * 0x10000 + raw[3 * n + i] * 0x1000000) >>> 0;
      values[i] = value;
    }
    return values;
  };
  const columns = async (packed, names) => {
    const entries = names.map(async (name) => [name, await integers(packed[name], packed.n)]);
    return {n: packed.n, ...Object.fromEntries(await Promise.all(entries))};
  };
  const RECTANGLES = ["job", "gpu", "start", "size", "span", "from", "lasts"];
  const unpacked = new WeakMap();
  const unpack = async (zoom) => ({
    stretches: await columns(zoom.stretches, RECTANGLES),
    instances: await columns(zoom.instances, RECTANGLES),
    jobs: await columns(zoom.jobs, ["kind", "deadline", "late"]),
    ids: new TextDecoder().decode(await inflate(zoom.jobs.id)).split("\n"),
  });
  const TICKS_PER_HOUR = 36000;
  const clock = (ticks) => {
    const whole = Math.floor(ticks / 10);
    const two = (value) => String(value).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  };
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

  const inside = (table, tops, view) => {
    const found = [];
    for (let i = 0; i < table.n; i += 1) {
      const top = tops[table.gpu[i]] + table.start[i];
      const begins = table.from[i];
      if (begins <= view.to && begins + table.lasts[i] >= view.from && top <= view.bottom && top + table.span[i] >= view.top) {
        found.push(i);
      }
    }
    return found;
  };
  const rectangles = (table, tops, chosen, air) => ({
    base: chosen.map((i) => table.from[i] / TICKS_PER_HOUR),
    x: chosen.map((i) => table.lasts[i] / TICKS_PER_HOUR),
    y: chosen.map((i) => tops[table.gpu[i]] + table.start[i] + table.span[i] / 2),
    width: chosen.map((i) => table.span[i] - air),
  });
  const told = (zoom, data, chosen) => chosen.map((i) => {
    const {stretches, jobs, ids} = data;
    const job = stretches.job[i];
    const kind = zoom.jobs.kinds[jobs.kind[job]];
    const until = stretches.from[i] + stretches.lasts[i];
    const late = jobs.late[job] > 0 ? `late by ${(jobs.late[job] / 600).toFixed(1)} min` : "on time";
    return `<b>job ${plain(ids[job])}</b>  ${plain(kind)}<br>${stretches.size[i]}g on GPU ${plain(zoom.gpus[stretches.gpu[i]])}`
      + `<br>${clock(stretches.from[i])} – ${clock(until)}<br>deadline ${clock(jobs.deadline[job])}<br>${late}`;
  });
  const told_cut = (zoom, table, chosen) => chosen.map((i) =>
    `${table.size[i]}g instance of GPU ${plain(zoom.gpus[table.gpu[i]])}<br>${clock(table.from[i])} – ${clock(table.from[i] + table.lasts[i])}`);

  const follow = async (box, zoom) => {
    const bar = box.parentElement.querySelector(".zoom");
    const move = (change) => {
      const [low, high] = box.layout.xaxis.range.map(Number);
      const [from, to] = change(low, high, high - low);
      const wide = Math.min(to - from, zoom.end_h);
      const start = Math.max(0, Math.min(from, zoom.end_h - wide));
      Plotly.relayout(box, {"xaxis.range": [start, start + wide]});
    };
    const steps = {
      in: (low, high, wide) => [low + wide / 4, high - wide / 4],
      out: (low, high, wide) => [low - wide / 2, high + wide / 2],
      back: (low, high, wide) => [low - wide / 2, high - wide / 2],
      on: (low, high, wide) => [low + wide / 2, high + wide / 2],
      all: () => [0, zoom.end_h],
    };
    for (const button of bar.querySelectorAll("button")) button.onclick = () => move(steps[button.dataset.step]);
    bar.hidden = false;
    const note = bar.querySelector("output");
    if (!unpacked.has(box)) {
      try {
        unpacked.set(box, await unpack(zoom));
      } catch {
        note.textContent = "This browser cannot unpack single jobs; the picture shows the whole day.";
        return;
      }
    }
    const data = unpacked.get(box);
    const kept = data.stretches.n < zoom.n_stretches ? `, the ${data.stretches.n.toLocaleString("en")} longest kept` : "";
    let last = 0;
    const refresh = () => {
      const [low, high] = box.layout.xaxis.range.map(Number);
      const [bottom, top] = box.layout.yaxis.range.map(Number);
      windows.set(box, {xaxis: [low, high], yaxis: [bottom, top]});
      const view = {from: low * TICKS_PER_HOUR, to: high * TICKS_PER_HOUR, top: Math.min(top, bottom), bottom: Math.max(top, bottom)};
      const stretches = inside(data.stretches, zoom.tops, view);
      const cuts = inside(data.instances, zoom.tops, view);
      const few = stretches.length + cuts.length <= zoom.at_once;
      const all = few ? [[cuts, 0.06], [stretches.filter((i) => !data.jobs.late[data.stretches.job[i]]), 0.14],
        [stretches.filter((i) => data.jobs.late[data.stretches.job[i]]), 0.14]] : [[[], 0], [[], 0], [[], 0]];
      const change = {base: [], x: [], y: [], width: [], customdata: [], hovertemplate: "%{customdata}<extra></extra>"};
      all.forEach(([chosen, air], at) => {
        const table = at === 0 ? data.instances : data.stretches;
        for (const [name, values] of Object.entries(rectangles(table, zoom.tops, chosen, air))) change[name].push(values);
        change.customdata.push(at === 0 ? told_cut(zoom, table, chosen) : told(zoom, data, chosen));
      });
      note.textContent = few
        ? `${stretches.length.toLocaleString("en")} stretches of jobs drawn one by one${kept ? ", the shortest left out" : ""}.`
        : `${zoom.n_stretches.toLocaleString("en")} stretches of jobs in all${kept}: zoom in and they are drawn one by one.`;
      if (few || last) Plotly.update(box, change, {"images[0].visible": !few}, [0, 1, 2]);
      last = few;
    };
    box.on("plotly_relayout", refresh);
    refresh();
  };

  // Only what is about to be seen is drawn, so the page opens at once however many days it holds.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target, false);
    }
  }, {rootMargin: "600px 0px"});
  boxes.forEach((box) => watcher.observe(box));
  const again = () => [...drawn].forEach((box) => draw(box, false));
  dark.addEventListener("change", again);
  narrow.addEventListener("change", again);
  addEventListener("beforeprint", () => boxes.forEach((box) => draw(box, true)));
  addEventListener("afterprint", again);
})();
