// Marks formulas in the text that are wider than the text around them, so that the style sheet lets them scroll.
(() => {
  const mark = () => {
    for (const formula of document.querySelectorAll("mjx-container:not([display='true'])")) {
      formula.classList.remove("wide-formula");
      const block = formula.closest("p, li, td, dd, figcaption, .admonition, article");
      if (!block) continue;
      const room = block.clientWidth;
      formula.classList.toggle("wide-formula", room > 0 && formula.getBoundingClientRect().width > room);
    }
  };
  const start = () => {
    const ready = window.MathJax && window.MathJax.startup && window.MathJax.startup.promise;
    if (!ready) { setTimeout(start, 100); return; }
    ready.then(mark);
  };
  window.addEventListener("load", start);
  window.addEventListener("resize", () => requestAnimationFrame(mark));
  document.addEventListener("toggle", () => requestAnimationFrame(mark), true);
})();
