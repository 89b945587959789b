// Marks formulas in the text that are wider than the text around them, and figures that are wider than their boxes, so
// that the style sheet lets them scroll and says so.
(() => {
  const mark = () => {
    for (const formula of document.querySelectorAll("mjx-container:not([display='true'])")) {
      formula.classList.remove("wide-formula");
      const block = formula.closest("p, li, td, dd, figcaption, .admonition, article");
      if (!block) continue;
      const room = block.clientWidth;
      formula.classList.toggle("wide-formula", room > 0 && formula.getBoundingClientRect().width > room);
    }
    for (const box of document.querySelectorAll(".figure-box")) {
      box.classList.toggle("wide-figure", box.clientWidth > 0 && box.scrollWidth > box.clientWidth + 1);
    }
  };
  // The theme's arrows that fold a chapter have no words; give them some for those who hear the page.
  const name = () => {
    for (const arrow of document.querySelectorAll("nav summary:not([aria-label])")) {
      const link = arrow.closest("li")?.querySelector("a");
      arrow.setAttribute("aria-label", `Sections of ${link ? link.textContent.trim() : "this part"}`);
    }
  };
  const start = () => {
    const ready = window.MathJax && window.MathJax.startup && window.MathJax.startup.promise;
    if (!ready) { setTimeout(start, 100); return; }
    ready.then(mark);
  };
  window.addEventListener("load", () => { name(); mark(); start(); });
  window.addEventListener("resize", () => requestAnimationFrame(mark));
  document.addEventListener("toggle", () => requestAnimationFrame(mark), true);
})();
