"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SPLITS = ["train", "validation", "test", "eval"];
  const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2"];
  const COLOURS = 8;
  const state = {axis: "steps", smoothing: 0, marks: true, range: null, hiddenRuns: new Set()};
  const charts = [];

  function make(name, properties = {}, ...children) {
    const node = document.createElement(name);
    Object.assign(node, properties);
    node.append(...children);
    return node;
  }
  function draw(name, attributes, parent) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (parent) parent.append(node);
    return node;
  }

  // ---- Numbers

  function short(value) {
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e6 || size < 1e-4) return value.toExponential(3).replace(/\.?0+e/, "e");
    return String(Number(value.toPrecision(5)));
  }
  function duration(seconds) {
    const size = Math.abs(seconds);
    if (size < 120) return short(Math.round(seconds * 100) / 100) + " s";
    if (size < 7200) return short(Math.round(seconds / 6) / 10) + " min";
    return short(Math.round(seconds / 360) / 10) + " h";
  }
  const position = (x) => state.axis === "steps" ? String(x) : duration(x);

  // Returns about `count` round numbers between two numbers.
  function ticks(low, high, count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; ++at) found.push(at * step);
    return found;
  }
  function logTicks(low, high) {
    const found = [];
    const whole = Math.log10(high / low) > 2 ? [1] : [1, 2, 5];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
      for (const n of whole) if (n * 10 ** power >= low * 0.999 && n * 10 ** power <= high * 1.001) found.push(n * 10 ** power);
    return found.length > 1 ? found : [low, high];
  }

  // Returns an exponential moving average without bias towards 0, as in TensorBoard.
  function smoothed(values, weight) {
    let last = 0, count = 0;
    return values.map((value) => {
      if (typeof value !== "number") return value;
      last = last * weight + (1 - weight) * value;
      return last / (1 - weight ** ++count);
    });
  }

  // ---- A chart

  class Chart {
    constructor(title, series) {
      this.title = title;
      this.series = series;
      this.hidden = new Set();
      this.log = false;
      this.build();
    }

    build() {
      const log = make("input", {type: "checkbox"});
      log.addEventListener("change", () => { this.log = log.checked; this.render(); });
      this.svg = draw("svg", {class: "plot", role: "img", tabindex: "0"});
      this.read = make("p", {className: "read"});
      this.read.setAttribute("aria-live", "polite");
      this.note = make("p", {className: "note"});
      this.legend = make("div", {className: "legend"});
      const details = make("details", {}, make("summary", {textContent: "Table"}));
      details.addEventListener("toggle", () => { this.table(details); });
      this.details = details;
      this.card = make("article", {className: "chart"},
        make("div", {className: "head"}, make("h3", {textContent: this.title}), make("label", {}, log, " log")),
        this.svg, this.read, this.note, this.legend, details);
      if (this.series.some((one) => one.own)) for (const one of this.series) this.legend.append(this.toggle(one));
      this.listen();
    }

    toggle(one) {
      const button = make("button", {type: "button"}, swatch(one.colour, one.dash), one.label);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (!this.hidden.delete(one)) this.hidden.add(one);
        button.setAttribute("aria-pressed", String(!this.hidden.has(one)));
        this.render();
      });
      return button;
    }

    shown() {
      return this.series.filter((one) => !this.hidden.has(one) && !state.hiddenRuns.has(one.run));
    }

    // The scales of both axes.
    scale(lines) {
      let [left, right] = state.range || [Infinity, -Infinity];
      let low = Infinity, high = -Infinity;
      for (const {xs, ys} of lines) {
        if (!state.range && xs.length) { left = Math.min(left, xs[0]); right = Math.max(right, xs[xs.length - 1]); }
      }
      for (const {xs, ys} of lines) {
        ys.forEach((y, i) => {
          if (typeof y !== "number" || xs[i] < left || xs[i] > right || (this.log && y <= 0)) return;
          low = Math.min(low, y);
          high = Math.max(high, y);
        });
      }
      if (!(left <= right)) [left, right] = [0, 1];
      if (left === right) [left, right] = [left - 0.5, right + 0.5];
      if (!(low <= high)) [low, high] = this.log ? [0.1, 1] : [0, 1];
      if (this.log) {
        if (low === high) [low, high] = [low / 2, high * 2];
      } else {
        const space = (high - low) * 0.04 || Math.abs(high) * 0.1 || 0.5;
        [low, high] = [low - space, high + space];
      }
      const width = Math.max(this.svg.clientWidth, 200), height = 230;
      const box = {left: 56, right: width - 10, top: 8, bottom: height - 24};
      const place = this.log ? Math.log10 : (y) => y;
      return {left, right, low, high, width, height, box,
        x: (x) => box.left + (x - left) / (right - left) * (box.right - box.left),
        y: (y) => box.bottom - (place(y) - place(low)) / (place(high) - place(low)) * (box.bottom - box.top)};
    }

    axes(scale) {
      const {box} = scale;
      for (const y of this.log ? logTicks(scale.low, scale.high) : ticks(scale.low, scale.high, 5)) {
        draw("line", {class: "grid-line", x1: box.left, x2: box.right, y1: scale.y(y), y2: scale.y(y)}, this.svg);
        draw("text", {x: box.left - 5, y: scale.y(y) + 4, "text-anchor": "end"}, this.svg).textContent = short(y);
      }
      for (const x of ticks(scale.left, scale.right, Math.max(3, Math.floor(scale.width / 100)))) {
        draw("line", {class: "grid-line", x1: scale.x(x), x2: scale.x(x), y1: box.top, y2: box.bottom}, this.svg);
        draw("text", {x: scale.x(x), y: box.bottom + 16, "text-anchor": "middle"}, this.svg).textContent = position(x);
      }
    }

    path(xs, ys, scale) {
      let text = "", open = false;
      for (let i = 0; i < xs.length; ++i) {
        const gap = typeof ys[i] !== "number" || (this.log && ys[i] <= 0);
        if (!gap) text += (open ? "L" : "M") + scale.x(xs[i]).toFixed(1) + " " + scale.y(ys[i]).toFixed(1);
        open = !gap;
      }
      return text;
    }

    line(one, ys, scale, kind) {
      const path = draw("path", {class: kind, d: this.path(one.points[state.axis], ys, scale), "clip-path": "url(#" + this.clip + ")",
        "stroke-linecap": "round"}, this.svg);
      path.style.stroke = one.colour;
      if (one.dash) path.style.strokeDasharray = one.dash;
      if (kind === "line" && ys.length <= 30) this.dots(one, ys, scale);
    }

    // Draws the values of a short curve as points, because it may have a single one.
    dots(one, ys, scale) {
      one.points[state.axis].forEach((x, i) => {
        if (typeof ys[i] !== "number" || x < scale.left || x > scale.right || (this.log && ys[i] <= 0)) return;
        draw("circle", {cx: scale.x(x), cy: scale.y(ys[i]), r: 2.6}, this.svg).style.fill = one.colour;
      });
    }

    marks(scale, shown) {
      if (!state.marks) return;
      const colours = new Map(shown.filter((one) => SPLITS.includes(one.folder)).map((one) => [one.run, one.runColour]));
      for (const [run, colour] of colours) {
        for (const mark of data.runs[run].marks) {
          const x = state.axis === "steps" ? mark.step : mark.seconds;
          if (x === null || x < scale.left || x > scale.right) continue;
          const group = draw("g", {}, this.svg);
          draw("title", {}, group).textContent = mark.kind + " after step " + mark.step + ": " + mark.text;
          const at = scale.x(x);
          draw("line", {class: "mark", x1: at, x2: at, y1: scale.box.top, y2: scale.box.bottom}, group).style.stroke = colour;
          const tip = mark.kind === "restart" ? `M${at - 5} ${scale.box.bottom}h10l-5 -8z` : `M${at - 5} ${scale.box.top}h10l-5 8z`;
          draw("path", {d: tip}, group).style.fill = colour;
        }
      }
    }

    render() {
      const shown = this.shown();
      const lines = shown.map((one) => ({one, xs: one.points[state.axis], raw: one.points.values,
        ys: state.smoothing > 0 ? smoothed(one.points.values, state.smoothing) : one.points.values}));
      this.lines = lines;
      this.svg.replaceChildren();
      const scale = this.current = this.scale(lines.map(({xs, raw}) => ({xs, ys: raw})));
      this.svg.setAttribute("viewBox", `0 0 ${scale.width} ${scale.height}`);
      this.clip = "clip" + charts.indexOf(this);
      draw("rect", {x: scale.box.left, y: 0, width: scale.box.right - scale.box.left, height: scale.box.bottom + 1},
        draw("clipPath", {id: this.clip}, this.svg));
      this.axes(scale);
      for (const {one, raw, ys} of lines) {
        if (state.smoothing > 0) this.line(one, raw, scale, "line raw");
        this.line(one, ys, scale, "line");
      }
      this.marks(scale, shown);
      this.svg.setAttribute("aria-label", this.describe(shown));
      this.read.textContent = "";
      this.note.textContent = this.remarks(shown);
      if (this.details.open) this.table(this.details);
    }

    describe(shown) {
      const texts = shown.map((one) => {
        const values = one.points.values.filter((value) => typeof value === "number");
        return values.length ? `${one.label} from ${short(values[0])} to ${short(values[values.length - 1])}` : `${one.label} without numbers`;
      });
      return `${this.title} by ${state.axis === "steps" ? "step" : "time"}: ${texts.join("; ")}. The table below has the values.`;
    }

    remarks(shown) {
      const texts = [];
      for (const one of shown) {
        const {values, steps, all} = one.points;
        const odd = values.findIndex((value) => typeof value !== "number");
        if (odd >= 0) texts.push(`${one.label}: ${values[odd]} at step ${steps[odd]}`);
        if (all > values.length) texts.push(`${one.label}: ${values.length} of ${all} points`);
      }
      return texts.join("; ");
    }

    // ---- Reading values and zooming

    listen() {
      let from = null;
      const value = (event) => {
        const scale = this.current, box = this.svg.getBoundingClientRect();
        const x = (event.clientX - box.left) / box.width * scale.width;
        return scale.left + (Math.min(Math.max(x, scale.box.left), scale.box.right) - scale.box.left) /
          (scale.box.right - scale.box.left) * (scale.right - scale.left);
      };
      this.svg.addEventListener("pointerdown", (event) => { if (event.button === 0) from = value(event); });
      this.svg.addEventListener("pointermove", (event) => {
        const x = value(event);
        this.show(x);
        if (from !== null && event.buttons === 1) this.select(from, x);
      });
      this.svg.addEventListener("pointerup", (event) => {
        const to = value(event), begin = from;
        from = null;
        if (begin === null || Math.abs(this.current.x(to) - this.current.x(begin)) < 8) return;
        zoom([Math.min(begin, to), Math.max(begin, to)]);
      });
      this.svg.addEventListener("pointerleave", () => { from = null; });
      this.svg.addEventListener("dblclick", () => zoom(null));
      this.svg.addEventListener("keydown", (event) => {
        const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (event.key === "Escape") zoom(null);
        if (!way || !this.lines.length) return;
        event.preventDefault();
        const xs = this.lines[0].xs, at = this.at === undefined ? (way > 0 ? -1 : xs.length) : nearest(xs, this.at);
        this.show(xs[Math.min(Math.max(at + way, 0), xs.length - 1)]);
      });
    }

    select(from, to) {
      const [a, b] = [this.current.x(from), this.current.x(to)];
      if (this.area) this.area.remove();
      this.area = draw("rect", {class: "zoom", x: Math.min(a, b), width: Math.abs(b - a), y: this.current.box.top,
        height: this.current.box.bottom - this.current.box.top}, this.svg);
    }

    show(x) {
      this.at = x;
      if (this.cursor) this.cursor.remove();
      const scale = this.current, texts = [];
      this.cursor = draw("g", {}, this.svg);
      draw("line", {class: "cursor", x1: scale.x(x), x2: scale.x(x), y1: scale.box.top, y2: scale.box.bottom}, this.cursor);
      for (const {one, xs, raw, ys} of this.lines) {
        if (!xs.length) continue;
        const i = nearest(xs, x);
        texts.push(`${one.label} ${short(state.smoothing > 0 ? ys[i] : raw[i])} at ${position(xs[i])}`);
        if (typeof ys[i] === "number" && !(this.log && ys[i] <= 0))
          draw("circle", {cx: scale.x(xs[i]), cy: scale.y(ys[i]), r: 3.5}, this.cursor).style.fill = one.colour;
      }
      this.read.textContent = texts.join("; ");
    }

    // Rows are steps, and columns are curves. The table is built when it is opened.
    table(details) {
      while (details.children.length > 1) details.lastChild.remove();
      if (!details.open) return;
      const shown = this.shown(), rows = new Map();
      shown.forEach((one, column) => one.points[state.axis].forEach((x, i) => {
        if (!rows.has(x)) rows.set(x, []);
        rows.get(x)[column] = one.points.values[i];
      }));
      const head = make("tr", {}, cell("th", state.axis === "steps" ? "step" : "time", "col"), ...shown.map((one) => cell("th", one.label, "col")));
      const body = make("tbody");
      for (const x of [...rows.keys()].sort((a, b) => a - b)) {
        const values = rows.get(x);
        body.append(make("tr", {}, cell("th", position(x), "row"), ...shown.map((_, i) => cell("td", values[i] === undefined ? "–" : short(values[i])))));
      }
      details.append(make("div", {className: "scroll", tabIndex: 0}, make("table", {}, make("thead", {}, head), body)));
    }
  }

  function cell(name, text, scope) {
    const node = make(name, {textContent: text});
    if (scope) node.scope = scope; else node.className = "n";
    return node;
  }
  function nearest(xs, x) {
    let best = 0;
    for (let i = 1; i < xs.length; ++i) if (Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
    return best;
  }
  function swatch(colour, dash) {
    const svg = draw("svg", {width: 22, height: 10, "aria-hidden": "true"});
    const line = draw("line", {x1: 1, x2: 21, y1: 5, y2: 5, "stroke-width": 2.5}, svg);
    line.style.stroke = colour;
    if (dash) line.style.strokeDasharray = dash;
    return svg;
  }

  // ---- All charts

  function renderAll() { for (const chart of charts) if (chart.card.offsetParent) chart.render(); }
  function zoom(range) {
    state.range = range;
    document.getElementById("reset").hidden = range === null;
    renderAll();
  }

  const GROUPS = [["Loss and metrics", (tag, split) => split && (tag === "loss" || tag.startsWith("epoch_"))],
    ["Learning rate", (tag, split) => split && tag.startsWith("learning_rate")],
    ["Rate and input", (tag, split) => split && /^(examples_per_second|input_wait_share)$/.test(tag)],
    ["Other values of training", (tag, split) => split],
    ["System and others", () => true]];

  function collect() {
    const groups = GROUPS.map(() => new Map());
    data.runs.forEach((run, index) => {
      for (const curve of run.curves) {
        const split = SPLITS.includes(curve.folder);
        const group = groups[GROUPS.findIndex(([, takes]) => takes(curve.tag, split))];
        // "cpu_cores/worker_0" of another folder is the curve worker_0 of the chart cpu_cores.
        const [title, ...rest] = split ? [curve.tag] : curve.tag.split("/");
        if (!group.has(title)) group.set(title, []);
        group.get(title).push({run: index, folder: curve.folder, part: rest.join("/") || curve.folder, points: curve});
      }
    });
    return groups;
  }
  const colourOf = (index) => `var(--c${index % COLOURS})`;
  function style(series) {
    const rank = ({part}) => (SPLITS.includes(part) ? SPLITS.indexOf(part) : SPLITS.length);
    series.sort((a, b) => a.run - b.run || rank(a) - rank(b) || (a.part < b.part ? -1 : 1));
    const order = [...series].sort((a, b) => rank(a) - rank(b) || (a.part < b.part ? -1 : 1));
    const parts = [...new Set(order.map((one) => one.part))];
    const single = data.runs.length === 1;
    // Colours distinguish runs. If all curves are of one run, they distinguish folders or tasks.
    const byPart = single || (new Set(series.map((one) => one.run)).size === 1 && !SPLITS.includes(series[0].folder));
    series.forEach((one) => {
      const place = parts.indexOf(one.part);
      one.runColour = colourOf(one.run);
      one.colour = byPart ? colourOf(place) : one.runColour;
      one.dash = DASHES[(byPart ? Math.floor(place / COLOURS) : place + Math.floor(one.run / COLOURS)) % DASHES.length];
      // Curves that each run has once are in the legend of the page.
      one.own = parts.length > 1 || (!single && !SPLITS.includes(one.folder));
      one.label = single ? one.part : one.own ? `${data.runs[one.run].name} ${one.part}` : data.runs[one.run].name;
    });
    return series;
  }

  function buildCharts() {
    const place = document.getElementById("charts");
    collect().forEach((group, index) => {
      if (!group.size) return;
      const grid = make("div", {className: "grid"});
      const tags = [...group.keys()].sort((a, b) => (b === "loss") - (a === "loss") || (b === "epoch_loss") - (a === "epoch_loss") || (a < b ? -1 : 1));
      for (const tag of tags) {
        const chart = new Chart(tag, style(group.get(tag)));
        charts.push(chart);
        grid.append(chart.card);
      }
      const details = make("details", {className: "group", open: index < 3 || group.size <= 6},
        make("summary", {textContent: `${GROUPS[index][0]} (${group.size})`}), grid);
      details.addEventListener("toggle", renderAll);
      place.append(details);
    });
  }

  function buildControls() {
    const by = (id) => document.getElementById(id);
    const legend = by("legend");
    if (data.runs.length > 1) data.runs.forEach((run, index) => {
      const button = make("button", {type: "button"}, swatch(colourOf(index), DASHES[Math.floor(index / COLOURS) % DASHES.length]), run.name);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (!state.hiddenRuns.delete(index)) state.hiddenRuns.add(index);
        button.setAttribute("aria-pressed", String(!state.hiddenRuns.has(index)));
        renderAll();
      });
      legend.append(button);
    });
    by("axis").addEventListener("change", (event) => { state.axis = event.target.value; zoom(null); });
    by("smoothing").addEventListener("input", (event) => {
      state.smoothing = Number(event.target.value);
      by("smoothed").textContent = event.target.value;
      renderAll();
    });
    by("marks").addEventListener("change", (event) => { state.marks = event.target.checked; renderAll(); });
    by("reset").addEventListener("click", () => zoom(null));
    by("controls").hidden = charts.length === 0;
  }

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement.classList;
    const dark = root.contains("dark") || (!root.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
    root.remove("dark", "light");
    root.add(dark ? "light" : "dark");
  });
  buildCharts();
  buildControls();
  renderAll();
  let pending = 0;
  addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(renderAll); });
  document.documentElement.dataset.ready = String(charts.length);
})();
