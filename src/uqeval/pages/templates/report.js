(() => {
  "use strict";
  // User strings reach the page through textContent and attributes of text only, never as HTML.
  const data = JSON.parse(document.getElementById("uq-data").textContent);
  const byId = (id) => document.getElementById(id);

  // ---- charts: drawn to the width of their box, again when that changes ----
  const AXIS = 76; // what axis and labels take beside a panel

  function fitted(spec, width) {
    const copy = JSON.parse(JSON.stringify(spec));
    if (copy.facet) {
      const inner = copy.spec && typeof copy.spec.width === "number" ? copy.spec.width : 200;
      copy.columns = Math.max(1, Math.min(copy.columns || 9, Math.floor(width / (inner + AXIS))));
    } else if (copy.vconcat) {
      for (const part of copy.vconcat) {
        if (typeof part.width === "number") part.width = Math.min(part.width, Math.max(220, width - AXIS));
      }
    } else if (typeof copy.width === "number") {
      copy.width = "container";
      copy.autosize = { type: "fit-x", contains: "padding" };
    }
    const config = copy.config = copy.config || {};
    config.background = null;
    config.axis = Object.assign({}, config.axis, { labelSeparation: 8 });
    config.legend = Object.assign({}, config.legend, { symbolOpacity: 1 });
    if (width < 620) {
      const columns = width < 420 ? 1 : 2;
      Object.assign(config.legend, { orient: "bottom", columns, labelLimit: (width - AXIS) / columns - 40 });
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

  // A box is a stop of the tab key only where it has something to scroll.
  function markScrollable() {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth + 1) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  }

  async function drawAll() {
    for (const box of document.querySelectorAll("[data-chart]")) {
      try {
        await draw(box);
      } catch (error) {
        box.textContent = "This chart could not be drawn; its numbers are below.";
        console.error(error);
      }
    }
    markScrollable();
    document.documentElement.dataset.charts = "ready";
  }

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
        shape(svg, "text", { x: left - 6, y: py(share) + 4, "text-anchor": "end" }, percent(share));
      }
      shape(svg, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.axis);
      const points = curve.coverage.map((share, i) => `${px(share)},${py(curve.risk[i])}`);
      if (curve.high) {
        const up = curve.coverage.map((share, i) => `${px(share)},${py(curve.high[i])}`);
        const down = curve.coverage.map((share, i) => `${px(share)},${py(curve.low[i])}`).reverse();
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
  document.addEventListener("toggle", markScrollable, true);
  // Paper has no triangles to click.
  window.addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
  drawAll();
})();
