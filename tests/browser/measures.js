// Run inside a page of the book; returns a list of sentences, each a fault that a reader would see.
() => {
  const found = [];
  const column = document.querySelector("article.bd-article") || document.querySelector("main") || document.body;
  const shown = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const name = (e) => Array.from((e.innerText || e.alt || e.className || e.tagName).toString().trim().replace(/\s+/g, " ")).slice(0, 70).join("");

  // The nearest box that scrolls sideways and shows that it does: a bar of its own, or a shadow at the cut edge.
  const scrolls = (e) => {
    for (let box = e; box && box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (/(auto|scroll)/.test(style.overflowX) && box.scrollWidth > box.clientWidth + 1) {
        const bar = box.offsetHeight - box.clientHeight - parseFloat(style.borderTopWidth) - parseFloat(style.borderBottomWidth);
        return bar >= 4 || style.getPropertyValue("--scroll-shown").trim() === "yes";
      }
      if (style.overflowX === "hidden" && !style.display.startsWith("inline") && box.tagName !== "SPAN" && box.scrollWidth > box.clientWidth + 1 && box !== e) return false;
    }
    return null; // nothing around it scrolls
  };

  const right = column.getBoundingClientRect().right + 1;
  const wide = (e) => {
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX !== "visible") return true;
    return e.getBoundingClientRect().right > right;
  };
  const check = (selector, what) => {
    for (const e of column.querySelectorAll(selector)) {
      if (!shown(e) || !wide(e)) continue;
      if (!scrolls(e)) found.push(`${what} is cut off: ${name(e)}`);
    }
  };
  check("mjx-container[display='true']", "a display equation");
  if (window.innerWidth >= 1200) {
    const settled = [["mjx-container[display='true']", "a display equation"], ["div.cell_input pre, div.highlight-python pre", "code"], ["div.cell_output pre", "output"]];
    for (const [selector, what] of settled) {
      for (const e of column.querySelectorAll(selector)) {
        if (shown(e) && !e.closest("details") && e.scrollWidth > e.clientWidth + 1) found.push(`${what} needs scrolling on a desktop: ${name(e)}`);
      }
    }
  }
  // A figure's labels are drawn at 17 to 19 pixels; below half of that nobody reads them.
  for (const e of column.querySelectorAll(".cell_output img, figure img")) {
    if (shown(e) && e.naturalWidth && e.getBoundingClientRect().width < 0.5 * e.naturalWidth) found.push(`a figure is too small to read: ${name(e)}`);
  }
  check("mjx-container:not([display='true'])", "an inline formula");
  check("div.highlight pre, div.cell_output pre", "code or output");
  check("table", "a table");
  check("img, svg.figure, figure", "a figure");

  const sideways = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (sideways > 1) found.push(`the page scrolls sideways by ${sideways} pixels`);
  for (const image of document.images) {
    if (image.complete && image.naturalWidth === 0 && !/^https?:/.test(image.src)) found.push(`an image does not load: ${image.src.split("/").pop()}`);
  }

  // Contrast of text against what lies behind it (WCAG 2, at least 4.5; 3 for large text).
  const parse = (c) => { const m = c.match(/rgba?\(([^)]+)\)/); if (!m) return null; const p = m[1].split(/[ ,\/]+/).map(Number); return [p[0], p[1], p[2], p.length > 3 ? p[3] : 1]; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = (c) => { const f = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = (e) => {
    const stack = [];
    for (let box = e; box; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (style.backgroundImage !== "none" && box !== document.body && box !== document.documentElement) return null;
      const c = parse(style.backgroundColor);
      if (c && c[3] > 0) { stack.push(c); if (c[3] === 1) break; }
    }
    let colour = [255, 255, 255, 1];
    for (const c of stack.reverse()) colour = over(c, colour);
    return colour;
  };
  const faint = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Map();
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (!node.data.trim() || !e || !shown(e) || e.closest("svg, script, style, noscript, mjx-assistive-mml, .headerlink, .visually-hidden, .skip-link")) continue;
    const style = getComputedStyle(e);
    if (style.visibility === "hidden" || parseFloat(style.opacity) === 0) continue;
    const back = behind(e), ink = parse(style.color);
    if (!back || !ink) continue;
    const key = style.color + back.join() + style.fontSize + style.fontWeight;
    if (seen.has(key)) continue;
    const value = ratio(over(ink, back), back), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700) ? 3 : 4.5;
    seen.set(key, value);
    if (value < least - 0.01) faint.set(key, `text is too faint (${value.toFixed(2)}): ${name(e)} [${style.color} on ${back.slice(0, 3).map(Math.round)}] <${e.tagName.toLowerCase()} class="${e.className}">`);
  }
  return found.concat([...faint.values()]);
}
