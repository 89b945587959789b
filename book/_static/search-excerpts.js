// The excerpts on the search page show mathematics as plain text: ε ≤ 1 instead of \(\varepsilon \le 1\).
(() => {
  const SIGNS = {
    alpha: "α", beta: "β", gamma: "γ", Gamma: "Γ", delta: "δ", Delta: "Δ", epsilon: "ε", varepsilon: "ε", zeta: "ζ",
    eta: "η", theta: "θ", Theta: "Θ", kappa: "κ", lambda: "λ", Lambda: "Λ", mu: "μ", nu: "ν", xi: "ξ", pi: "π", rho: "ρ",
    sigma: "σ", Sigma: "Σ", tau: "τ", phi: "φ", varphi: "φ", Phi: "Φ", chi: "χ", psi: "ψ", omega: "ω", Omega: "Ω",
    le: "≤", leq: "≤", ge: "≥", geq: "≥", ne: "≠", approx: "≈", sim: "~", propto: "∝", in: "∈", subset: "⊂", infty: "∞",
    cdot: "·", times: "×", pm: "±", to: "→", mapsto: "↦", mid: "|", lVert: "‖", rVert: "‖", vert: "|", sum: "Σ", prod: "Π",
    int: "∫", partial: "∂", sqrt: "√", ldots: "…", dots: "…", cdots: "…", lceil: "⌈", rceil: "⌉", lfloor: "⌊", rfloor: "⌋",
    prime: "′", star: "*", E: "E", Var: "Var", R: "ℝ", Lap: "Laplace", Normal: "N", Bern: "Bernoulli", Bin: "Binomial",
    BetaD: "Beta", Pr: "Pr", exp: "exp", log: "log", ln: "ln", min: "min", max: "max", sup: "sup", tanh: "tanh", cosh: "cosh",
    quad: " ", qquad: " ",
  };
  const plain = (tex) => tex
    .replace(/\\[()[\]]|\\(begin|end)\{[^}]*\}|\\(label|tag)\{[^}]*\}/g, " ")
    .replace(/\\[tdc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}/g, "$1/$2")
    .replace(/\\binom\s*\{([^{}]*)\}\s*\{([^{}]*)\}/g, "C($1, $2)")
    .replace(/\\([A-Za-z]+)/g, (_, name) => (name in SIGNS ? SIGNS[name] : ""))
    .replace(/\\[,;:! ]/g, " ").replace(/\\\\|&/g, " ").replace(/\\([{}%])/g, "$1")
    .replace(/[{}$]/g, "").replace(/\s+/g, " ").trim();
  if (typeof module !== "undefined") { module.exports = plain; return; }

  document.addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined" || !Search.htmlToText) return;
    const whole = Search.htmlToText;
    Search.htmlToText = (page, anchor) => {
      const parsed = new DOMParser().parseFromString(page, "text/html");
      for (const formula of parsed.querySelectorAll(".math")) formula.textContent = ` ${plain(formula.textContent)} `;
      return whole(parsed.documentElement.outerHTML, anchor);
    };
  });
})();
