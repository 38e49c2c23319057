(() => {
  "use strict";
  // User strings reach the page through textContent and attributes of text only, never as HTML.
  const data = JSON.parse(document.getElementById("uq-data").textContent);
  const byId = (id) => document.getElementById(id);

  document.documentElement.classList.add("live"); // charts that move take the place of the still ones

  // ---- charts: drawn to the width of their box, again when that changes ----
  const AXIS = 76; // what axis and labels take beside a panel
  const LETTER = 7.4; // the width of one, about

  function each(part, act) {
    if (part === null || typeof part !== "object") return;
    act(part);
    for (const [key, inner] of Object.entries(part)) if (key !== "datasets") each(inner, act);
  }

  function broken(title, width) {
    const lines = [""], most = Math.max(12, Math.floor(width / LETTER));
    for (const word of title.split(" ")) {
      const line = lines[lines.length - 1];
      if (line && line.length + 1 + word.length > most) lines.push(word);
      else lines[lines.length - 1] = line ? line + " " + word : word;
    }
    return lines;
  }

  // Rows with names and numbers beside them are too wide for a phone: the names stand above their marks, the numbers in a table.
  function narrowRows(copy, width) {
    each(copy.vconcat, (part) => {
      if (part.layer) part.layer = part.layer.filter((layer) => !(layer.mark && layer.mark.type === "text"));
      if (part.height && part.height.step) part.height = { step: 36 };
      if (part.hconcat) part.hconcat = part.hconcat.slice(0, 1); // who is joined to whom stands below as text
      if (part.encoding && part.encoding.y && part.encoding.y.axis) {
        Object.assign(part.encoding.y.axis, {
          labelAlign: "left", labelBaseline: "bottom", labelOffset: -7, labelPadding: -2, ticks: false, domain: false,
          labelLimit: width - 40,
        });
      }
      if (typeof part.width === "number") part.width = width - 50;
    });
  }

  function fitted(spec, width) {
    const copy = JSON.parse(JSON.stringify(spec));
    const config = copy.config = copy.config || {};
    config.background = null;
    copy.padding = { left: 5, right: 16, top: 5, bottom: 5 }; // a label of an axis may stand out on the right
    config.axis = Object.assign({}, config.axis, { labelSeparation: 8 });
    config.legend = Object.assign({}, config.legend, { symbolOpacity: 1, labelLimit: 0 });
    if (copy.facet) {
      const inner = copy.spec && typeof copy.spec.width === "number" ? copy.spec.width : 200;
      copy.columns = Math.max(1, Math.min(copy.columns || 9, Math.floor(width / (inner + AXIS))));
    } else if (copy.vconcat) {
      for (const part of copy.vconcat) {
        if (typeof part.width === "number") part.width = Math.min(part.width, Math.max(220, width - AXIS));
      }
      if (width < 700 && JSON.stringify(copy.vconcat).includes('"step"')) narrowRows(copy, width);
    } else if (typeof copy.width === "number") {
      copy.width = "container";
      copy.autosize = { type: "fit-x", contains: "padding" };
    }
    if (width < 620) {
      let longest = 8;
      each(copy, (part) => {
        const names = part.scale && Array.isArray(part.scale.domain) ? part.scale.domain : [];
        for (const name of names) if (typeof name === "string") longest = Math.max(longest, name.length);
        if (part.field && typeof part.title === "string" && part.title.length > 20) part.title = broken(part.title, width - AXIS);
      });
      const columns = Math.max(1, Math.min(3, Math.floor(width / (longest * LETTER + 44))));
      Object.assign(config.legend, { orient: "bottom", columns });
    }
    return copy;
  }

  const options = { renderer: "svg", actions: false, mode: "vega-lite", logLevel: 1, tooltip: { theme: "custom" } };
  const drawn = new Map();

  async function draw(box) {
    const width = box.parentElement.clientWidth, former = drawn.get(box);
    if (!width || (former && former.width === width)) return;
    if (former) former.view.finalize();
    const view = await window.vegaEmbed(box, fitted(data.charts[box.dataset.chart], width), options);
    // The box is an image with a description; the hundreds of parts inside would only be noise.
    for (const picture of box.querySelectorAll("svg")) picture.setAttribute("aria-hidden", "true");
    drawn.set(box, { view, width });
  }

  // A table that does not fit becomes denser, then a list of cards; a box that still has more than it shows is a stop of the tab key.
  function fitAll() {
    for (const box of document.querySelectorAll(".scroll")) {
      const table = box.classList.contains("fit") ? box.querySelector("table") : null;
      if (table && box.clientWidth) {
        const over = () => box.scrollWidth > box.clientWidth + 1;
        table.classList.remove("tight", "cards");
        if (over()) table.classList.add("tight"); // intervals below their values
        if (over()) table.classList.replace("tight", "cards");
        if (table.nextSibling) table.nextSibling.hidden = !table.classList.contains("cards") || table.classList.contains("all");
      }
      if (box.scrollWidth > box.clientWidth + 1) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  }

  async function drawAll() {
    for (const box of document.querySelectorAll("[data-chart]")) {
      try {
        await draw(box);
      } catch (error) {
        box.classList.add("failed"); // the still one stays
        console.error(error);
      }
    }
    fitAll();
    document.documentElement.dataset.charts = "ready";
  }

  // ---- tables: a click on a heading sorts, another one turns the order round ----
  function value(cell) {
    const text = cell.textContent.replace(/−/g, "-").replace(/,/g, "").trim();
    const number = parseFloat(text.replace(/^[<>]/, ""));
    return Number.isNaN(number) ? text : number;
  }

  function sort(table, column, down) {
    const cell = (row) => row.children[column];
    const rows = [...table.tBodies[0].rows].map((row) => [value(cell(row)), row]);
    const empty = (key) => typeof key === "string" && (key === "" || key === "–");
    rows.sort(([a], [b]) => {
      if (empty(a) || empty(b)) return empty(a) - empty(b); // what is not known stays last
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
    [...table.tHead.rows[0].cells].forEach((head, k) => {
      if (k === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function makeSortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, k) => { cell.dataset.head = heads[k].textContent; });
    const count = table.tBodies[0].rows.length;
    if (count > 10) { // as cards, all of them would be endless
      const more = document.createElement("button");
      more.type = "button";
      more.textContent = `Show all ${count}`;
      more.hidden = true;
      more.addEventListener("click", () => { table.classList.add("all"); more.hidden = true; });
      table.after(more);
    }
    if (count < 2) return;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort"), best = /↑/.test(head.textContent);
        sort(table, column, now ? now === "ascending" : best); // first the best
      });
    });
  }

  for (const table of document.querySelectorAll(".fit > table")) makeSortable(table);

  // ---- explorer: all numbers were computed and written out beforehand ----
  const SVG = "http://www.w3.org/2000/svg";

  function shape(parent, name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  function explorer(x) {
    const pick = byId("ex-score"), cover = byId("ex-coverage"), target = byId("ex-target"), plot = byId("ex-plot");
    let score = null;

    const write = (names, cells) => names.forEach((id, k) => { byId(id).textContent = cells[k]; });

    function choose() {
      score = x.scores[Number(pick.value)];
      cover.max = String(score.a.length - 1);
      cover.value = String(score.start);
      show();
    }

    function show() {
      const at = score.a[Number(cover.value)];
      const fields = ["a-threshold", "a-accepted", "a-errors", "a-risk"];
      write(x.weighted ? fields : [...fields, "a-high", "a-band"], at.slice(1));
      byId("ex-a-out").textContent = at[0];
      cover.setAttribute("aria-valuetext", at[0]);
      if (target) {
        const k = Number(target.value), promise = score.b[k];
        write(["b-threshold", "b-coverage", "b-accepted", "b-errors", "b-risk", "b-bound"], promise);
        const value = score.values[k];
        byId("b-threshold").dataset.value = value === null ? "" : String(value);
        byId("ex-b-out").textContent = x.targets[k] + (promise[6] ? ": " + promise[6] : "");
        target.setAttribute("aria-valuetext", x.targets[k]);
      }
      plot.setAttribute("aria-label", `A curve: risk of the accepted inputs against their share, for ${pick.selectedOptions[0].textContent}. ` +
        `With ${at[0]} accepted it is ${at[4]}; with all, ${score.a[score.a.length - 1][4]}.`);
      picture();
    }

    function picture() {
      const width = plot.clientWidth || 640, height = 240, left = 58, right = 14, top = 12, bottom = 40;
      const curve = score.curve, k = Number(cover.value);
      const goal = target ? x.risks[Number(target.value)] : null, found = target ? score.covers[Number(target.value)] : 0;
      const tops = [...curve.risk, goal || 0, ...(curve.high || []).filter((_, i) => curve.coverage[i] >= 0.3)];
      const most = Math.min(1, 1.08 * Math.max(...tops)) || 1;
      const px = (share) => left + share * (width - left - right);
      const py = (risk) => top + (1 - Math.min(risk, most) / most) * (height - top - bottom);
      const svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("aria-hidden", "true");
      const percent = (share) => `${Number((100 * share).toPrecision(2))}%`;
      shape(svg, "path", { class: "axis", d: `M${left},${top}V${height - bottom}H${width - right}` });
      for (const share of [0, 0.25, 0.5, 0.75, 1]) {
        shape(svg, "text", { x: px(share), y: height - bottom + 16, "text-anchor": share === 1 ? "end" : "middle" }, percent(share));
      }
      const rough = most / 4, unit = 10 ** Math.floor(Math.log10(rough));
      const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= rough);
      for (let share = 0; share <= most; share += step) {
        shape(svg, "text", { x: left - 6, y: py(share) + 4, "text-anchor": "end" }, x.loss ? String(Number(share.toPrecision(2))) : percent(share));
      }
      shape(svg, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.axis);
      const points = curve.coverage.map((share, i) => `${px(share)},${py(curve.risk[i])}`);
      if (curve.high) {
        const rows = curve.coverage.map((share, i) => i).filter((i) => curve.coverage[i] >= 0.01); // of few rows it is a wall
        const up = rows.map((i) => `${px(curve.coverage[i])},${py(curve.high[i])}`);
        const down = rows.map((i) => `${px(curve.coverage[i])},${py(curve.low[i])}`).reverse();
        shape(svg, "path", { class: "band", d: `M${up.join("L")}L${down.join("L")}Z` });
      }
      shape(svg, "path", { class: "curve", d: `M${points.join("L")}` });
      if (goal !== null) {
        shape(svg, "line", { class: "target", x1: left, x2: width - right, y1: py(goal), y2: py(goal) });
        if (found > 0) {
          const cx = px(found), cy = py(goal);
          shape(svg, "path", { class: "diamond", d: `M${cx - 7},${cy}L${cx},${cy - 7}L${cx + 7},${cy}L${cx},${cy + 7}Z` });
        }
      }
      shape(svg, "line", { class: "at", x1: px(curve.coverage[k]), x2: px(curve.coverage[k]), y1: top, y2: height - bottom });
      shape(svg, "circle", { class: "dot", cx: px(curve.coverage[k]), cy: py(curve.risk[k]), r: 5 });
      plot.replaceChildren(svg);
    }

    byId("explorer-box").hidden = false;
    pick.addEventListener("change", choose);
    for (const slider of [cover, target]) if (slider) slider.addEventListener("input", show);
    choose();
    return picture;
  }

  const redraw = data.explorer ? explorer(data.explorer) : () => {};
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { redraw(); drawAll(); }, 150);
  });
  document.addEventListener("toggle", fitAll, true);
  const button = byId("print");
  button.hidden = false;
  button.addEventListener("click", () => window.print());
  // Paper has no triangles to click.
  const closed = [];
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details:not([open])")) { part.open = true; closed.push(part); }
  });
  window.addEventListener("afterprint", () => { for (const part of closed.splice(0)) part.open = false; });
  drawAll();
})();
