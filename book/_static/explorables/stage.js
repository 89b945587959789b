// What the interactive figures share: sliders and buttons that work by mouse, touch and keyboard, axes, curves, a line of
// text that says the numbers (and is read aloud when they change), and a place in the page. No library, no server.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const html = (tag, settings = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(settings)) {
      if (name in made && name !== "list") made[name] = value; else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  };
  const svg = (tag, settings = {}, text = "") => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(settings)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  };

  // Numbers as a reader expects them ----------------------------------------------------------------------------------

  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const power = (k) => (k === 0 ? "1" : k === 1 ? "10" : `10${k < 0 ? "⁻" : ""}${[...String(Math.abs(k))].map((d) => SUPERSCRIPTS[d]).join("")}`);
  const whole = (v) => Math.round(v).toLocaleString("en-GB").replace("-", "−");
  const fixed = (v, digits) => v.toFixed(digits).replace("-", "−");
  const percent = (v, digits = 0) => `${fixed(100 * v, digits)}\u00a0%`; // no break before the sign
  // Three digits that matter, without an exponent: 0.0145, 5.22, 952.
  const brief = (v) => (v === 0 ? "0" : Math.abs(v) >= 1000 ? whole(v) : Number(v.toPrecision(3)).toString().includes("e") ? v.toExponential(1) : Number(v.toPrecision(3)).toString()).replace(/^-/, "−");

  // A panel: axes, and what is drawn on them --------------------------------------------------------------------------

  const MARGIN = { left: 54, right: 14, top: 14, bottom: 44 };
  let clips = 0;

  class Plot {
    constructor(root, width, height, axes) {
      Object.assign(this, { root, width, height, axes });
      root.replaceChildren();
      root.setAttribute("viewBox", `0 0 ${width} ${height}`);
      root.setAttribute("height", height);
      const place = (log, [low, high], from, to) => {
        const f = log ? Math.log : (v) => v;
        return (v) => from + ((to - from) * (f(v) - f(low))) / (f(high) - f(low));
      };
      this.x = place(axes.logX, axes.x, MARGIN.left, width - MARGIN.right);
      this.y = place(axes.logY, axes.y, height - MARGIN.bottom, MARGIN.top);
      this.frame();
      const id = `dpx-clip-${clips++}`;
      const clip = svg("clipPath", { id });
      clip.append(svg("rect", { x: MARGIN.left, y: MARGIN.top - 6, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom + 6 }));
      this.inside = svg("g", { "clip-path": `url(#${id})` });
      root.append(clip, this.inside);
    }

    // What x the pointer is at.
    valueAt(clientX) {
      const box = this.root.getBoundingClientRect(), [low, high] = this.axes.x;
      const share = ((clientX - box.left) * (this.width / box.width) - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
      return this.axes.logX ? low * (high / low) ** share : low + share * (high - low);
    }

    frame() {
      const { axes, width, height } = this, bottom = height - MARGIN.bottom, right = width - MARGIN.right;
      const named = (ticks) => ticks.map((t) => (Array.isArray(t) ? t : [t, brief(t)]));
      for (const [value, name] of named(axes.ticksX || ticks(axes.x, axes.logX, width < 380 ? 5 : 7))) {
        const x = this.x(value);
        this.root.append(svg("path", { class: "dpx-grid", d: `M${x} ${MARGIN.top}V${bottom}` }),
          svg("text", { x, y: bottom + 17, "text-anchor": "middle" }, name));
      }
      for (const [value, name] of named(axes.ticksY || ticks(axes.y, axes.logY, 6))) {
        const y = this.y(value);
        this.root.append(svg("path", { class: "dpx-grid", d: `M${MARGIN.left} ${y}H${right}` }),
          svg("text", { x: MARGIN.left - 7, y: y + 4, "text-anchor": "end" }, name));
      }
      this.root.append(svg("path", { class: "dpx-axis", d: `M${MARGIN.left} ${MARGIN.top}V${bottom}H${right}` }));
      this.root.append(svg("text", { x: (MARGIN.left + right) / 2, y: height - 7, "text-anchor": "middle" }, axes.xLabel));
      const middle = (MARGIN.top + bottom) / 2;
      this.root.append(svg("text", { x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})` }, axes.yLabel));
    }

    path(points) {
      return points.filter(([x, y]) => Number.isFinite(this.x(x)) && Number.isFinite(this.y(y)))
        .map(([x, y], i) => `${i ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`).join("");
    }
    curve(points, look) { this.inside.append(svg("path", { class: `dpx-curve dpx-${look}`, d: this.path(points) })); }
    // An area between the curve and a floor (the lower edge of the panel unless another is given).
    area(points, look, floor = this.axes.y[0]) {
      if (points.length < 2) return;
      const ends = [[points[points.length - 1][0], floor], [points[0][0], floor]];
      this.inside.append(svg("path", { class: `dpx-area dpx-${look}`, d: `${this.path([...points, ...ends])}Z` }));
    }
    rule(value, look, along = "x") {
      const d = along === "x" ? `M${this.x(value)} ${MARGIN.top}V${this.height - MARGIN.bottom}` : `M${MARGIN.left} ${this.y(value)}H${this.width - MARGIN.right}`;
      this.inside.append(svg("path", { class: `dpx-rule dpx-${look}`, d }));
    }
    band(low, high, look) { this.area([[this.axes.x[0], high], [this.axes.x[1], high]], look, low); }
    dot(x, y, look, size = 6) { this.inside.append(svg("circle", { class: `dpx-dot dpx-${look}`, cx: this.x(x), cy: this.y(y), r: size })); }
    star(x, y, look) {
      const points = Array.from({ length: 10 }, (_, i) => {
        const angle = (Math.PI * i) / 5 - Math.PI / 2, radius = i % 2 ? 4.5 : 11;
        return `${(this.x(x) + radius * Math.cos(angle)).toFixed(1)},${(this.y(y) + radius * Math.sin(angle)).toFixed(1)}`;
      });
      this.inside.append(svg("polygon", { class: `dpx-dot dpx-${look}`, points: points.join(" ") }));
    }
    bar(from, to, height, look) {
      const left = this.x(from), top = this.y(Math.max(height, this.axes.y[0]));
      this.inside.append(svg("rect", { class: `dpx-bar dpx-${look}`, x: left, y: top, width: Math.max(this.x(to) - left, 0.5), height: Math.max(this.height - MARGIN.bottom - top, 0) }));
    }
    // A grip on a vertical line that can be dragged.
    grip(value, look) {
      this.rule(value, look);
      this.root.append(svg("circle", { class: `dpx-grip dpx-${look}`, cx: this.x(value), cy: MARGIN.top, r: 7 }));
    }
    note(x, y, text, anchor = "start") {
      this.root.append(svg("text", { class: "dpx-note", x: this.x(x) + (anchor === "start" ? 7 : anchor === "end" ? -7 : 0), y: this.y(y) + 4, "text-anchor": anchor }, text));
    }
  }

  function ticks([low, high], log, most) {
    if (log) {
      const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9), step = Math.ceil((last - first + 1) / most);
      return Array.from({ length: last - first + 1 }, (_, i) => first + i).filter((k) => (k - first) % step === 0).map((k) => [10 ** k, power(k)]);
    }
    const rough = (high - low) / most, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return found.map((v) => [v, Math.abs(v) >= 1000 ? whole(v) : fixed(v, digits).replace(/^−(0(\.0+)?)$/, "$1")]);
  }

  // Controls ------------------------------------------------------------------------------------------------------------

  const nearest = (values, wanted) => values.reduce((best, v, i) => (Math.abs(v - wanted) < Math.abs(values[best] - wanted) ? i : best), 0);

  function slider(control, state, changed) {
    const { key, label, values, show = brief } = control;
    const output = html("output");
    const input = html("input", { type: "range", min: 0, max: values.length - 1, step: 1, "data-key": key });
    const refresh = () => {
      input.value = nearest(values, state[key]);
      output.textContent = show(state[key]);
      input.setAttribute("aria-valuetext", show(state[key]));
    };
    input.addEventListener("input", () => { state[key] = values[+input.value]; changed(key); });
    return { row: html("label", { className: "dpx-row" }, html("span", {}, label), input, output), refresh };
  }

  function choice(control, state, changed) {
    const { key, label, options } = control;
    const input = html("select", { "data-key": key });
    for (const [value, name] of options) input.append(html("option", { value }, name));
    const refresh = () => { input.value = state[key]; };
    input.addEventListener("change", () => { const found = options.find(([value]) => String(value) === input.value); state[key] = found[0]; changed(key); });
    return { row: html("label", { className: "dpx-row" }, html("span", {}, label), input), refresh };
  }

  function tick(control, state, changed) {
    const { key, label } = control;
    const input = html("input", { type: "checkbox", "data-key": key });
    const refresh = () => { input.checked = state[key]; };
    input.addEventListener("change", () => { state[key] = input.checked; changed(key); });
    return { row: html("label", { className: "dpx-row dpx-tick" }, input, html("span", {}, label)), refresh };
  }

  const KINDS = { slider, choice, tick };

  // A figure --------------------------------------------------------------------------------------------------------------

  function define(name, figure) {
    const place = document.getElementById(`fig-explore-${name}`);
    if (!place || place.querySelector(".explorable")) return;
    const start = { ...dpx.numbers.START[name], ...figure.start }, state = { ...start };
    const says = html("p", { className: "dpx-says", role: "status", "aria-live": "polite" });
    const controls = (figure.controls || []).map((control) => KINDS[control.kind || "slider"](control, state, changed));
    const panels = figure.panels.map((panel) => ({ ...panel, root: svg("svg", { role: "img", "aria-label": panel.label, class: "dpx-plot" }) }));
    const buttons = (figure.buttons || []).map((button) => html("button", { type: "button", textContent: button.label, "data-button": button.label, onclick: () => { button.press(state, update); update(); } }));
    const again = html("button", { type: "button", textContent: "Reset", "data-button": "Reset", onclick: () => { Object.assign(state, start); figure.changed?.(state, ""); update(); } });
    const legend = html("ul", { className: "dpx-legend" });
    for (const [look, label] of figure.legend) {
      const sample = svg("svg", { viewBox: "0 0 34 12", "aria-hidden": "true" });
      sample.append(look === "forbidden" || look === "band"
        ? svg("rect", { class: `dpx-area dpx-${look}`, x: 1, y: 0, width: 32, height: 12 })
        : svg("path", { class: `dpx-curve dpx-${look}`, d: "M1 6H33" }));
      legend.append(html("li", {}, sample, html("span", {}, label)));
    }
    const root = html("div", { className: "explorable", role: "group", "aria-label": figure.title },
      html("div", { className: "dpx-controls" }, ...controls.map((each) => each.row)),
      html("div", { className: "dpx-buttons" }, ...buttons, again),
      html("div", { className: "dpx-panels" }, ...panels.map((panel) => html("div", { className: "dpx-panel" }, panel.root))),
      legend, says);

    let numbers;
    function changed(key) { figure.changed?.(state, key); update(); }
    function draw() {
      for (const panel of panels) {
        const width = Math.round(panel.root.parentElement.clientWidth);
        if (width < 50) continue;
        panel.plot = new Plot(panel.root, width, Math.min(300, Math.max(230, Math.round(width * 0.72))), panel.axes(state, numbers));
        panel.draw(panel.plot, state, numbers);
      }
    }
    function update() {
      numbers = dpx.numbers[name](state);
      for (const control of controls) control.refresh();
      draw();
      const text = figure.says(state, numbers);
      if (says.innerHTML !== text) says.innerHTML = text;
    }
    for (const panel of panels) {
      if (!panel.drag) continue;
      panel.root.classList.add("dpx-draggable");
      const control = figure.controls.find((each) => each.key === panel.drag);
      const move = (event) => {
        state[panel.drag] = control.values[nearest(control.values, panel.plot.valueAt(event.clientX))];
        changed(panel.drag);
      };
      panel.root.addEventListener("pointerdown", (event) => { panel.root.setPointerCapture(event.pointerId); move(event); });
      panel.root.addEventListener("pointermove", (event) => { if (panel.root.hasPointerCapture(event.pointerId)) move(event); });
    }
    update(); // before anything is put into the page: where this fails, the picture stays
    const picture = place.querySelector(".figure-box") || place.querySelector("img");
    picture.before(root);
    picture.classList.add("dpx-static");
    update();
    new ResizeObserver(() => requestAnimationFrame(draw)).observe(root);
    root.dataset.ready = "yes";
  }

  Object.assign(dpx, { define, show: { brief, fixed, percent, power, whole } });
})();
