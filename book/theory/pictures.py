"""The interactive picture of the section on coins: one self-contained piece of HTML, without a server or a library.

Sliders choose among exact curves that were computed beforehand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook.plotting import INK, METHODS
from dpbook.theory import BetaBernoulli, privacy_profile

_RELEASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("II: one posterior draw", "sample", {}),
    ("III: m records from the posterior mean (as IV, redrawn)", "synthetic-plugin", {"estimator": "mean"}),
    ("IV: m records from one draw", "synthetic-bayes", {"redraw": False}),
)
_COLOURS = ("sample", "plug-in", "bayes")


def profile_curves(
    *,
    alphas: Sequence[float] = (1, 2, 5, 10, 20, 50, 100),
    sizes: Sequence[int] = (10, 100, 1000, 10_000),
    records: Sequence[int] = (1, 10, 100, 1000, 10_000),
    epsilons: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return exact profiles of coins for all combinations of prior (alpha = beta), n and number of synthetic records m.

    ``log10_delta`` is an array (release, alpha, n, m, epsilon), rounded to three decimals and not below -16. A draw
    does not depend on m.
    """
    at = np.arange(0, 5.01, 0.125) if epsilons is None else np.asarray(epsilons, dtype=float)
    found = np.empty((len(_RELEASES), len(alphas), len(sizes), len(records), len(at)))
    for r, i, j, k in np.ndindex(found.shape[:-1]):
        _, kind, options = _RELEASES[r]
        if kind == "sample" and k:
            found[r, i, j, k] = found[r, i, j, 0]
            continue
        more = options if kind == "sample" else {**options, "m": records[k]}
        model = BetaBernoulli(alphas[i], alphas[i])
        found[r, i, j, k] = privacy_profile(kind, model, sizes[j], epsilon=at, log=True, **more) / math.log(10)
    return {
        "releases": [name for name, _, _ in _RELEASES],
        "alphas": [float(a) for a in alphas],
        "sizes": [int(n) for n in sizes],
        "records": [int(m) for m in records],
        "epsilons": [float(e) for e in at],
        "log10_delta": np.round(np.maximum(found, -16.0), 3),
    }


def interactive_profile(
    *,
    alphas: Sequence[float] = (1, 2, 5, 10, 20, 50, 100),
    sizes: Sequence[int] = (10, 100, 1000, 10_000),
    records: Sequence[int] = (1, 10, 100, 1000, 10_000),
) -> str:
    """Return the picture as HTML, to show with ``IPython.display.HTML``; the same arguments give the same text.

    The curves of :func:`profile_curves` are in the page, three sliders (α, n, m; mouse, touch or arrow keys) choose
    among them, and a line of text says what the picture shows. It lies on a light card, on a dark page too, as every
    figure of the book does. Without JavaScript the first setting is drawn.
    """
    curves = profile_curves(alphas=alphas, sizes=sizes, records=records)
    table = curves.pop("log10_delta")
    # Three decimals as whole thousandths, each curve as its first value and the steps from there: half the size.
    coded = np.rint(table * 1000).astype(int)
    steps = np.concatenate([coded[..., :1], np.diff(coded, axis=-1)], axis=-1)
    data = {**curves, "steps": steps.tolist()}
    start = [len(curves["alphas"]) // 2, len(curves["sizes"]) // 2, len(curves["records"]) // 2]
    styles = [METHODS[name] for name in _COLOURS]
    dashes = ("", "7 4", "2 3")
    middle = tuple(start)
    paths = "".join(
        f'<path class="dpt-curve dpt-c{r}" data-curve="{r}" d="{_path(curves["epsilons"], table[r][middle])}"/>'
        for r in range(len(styles))
    )
    legend = "".join(
        f'<li><svg viewBox="0 0 34 8" aria-hidden="true"><path class="dpt-curve dpt-c{r}" d="M1 4H33"/></svg>'
        f"{name}</li>"
        for r, name in enumerate(curves["releases"])
    )
    rules = "".join(
        f".dpt .dpt-c{r}{{stroke:{style.color};stroke-dasharray:{dash or 'none'}}}"
        for r, (style, dash) in enumerate(zip(styles, dashes, strict=True))
    )
    sliders = "".join(
        _slider(key, label, curves[values], position)
        for key, label, values, position in (
            ("a", "prior, α = β", "alphas", start[0]),
            ("n", "records, n", "sizes", start[1]),
            ("m", "synthetic records, m", "records", start[2]),
        )
    )
    body = _PAGE.replace("@RULES@", rules).replace("@SLIDERS@", sliders).replace("@AXES@", _axes())
    body = body.replace("@PATHS@", paths).replace("@LEGEND@", legend).replace("@INK@", INK)
    return body.replace("@DATA@", json.dumps(data, separators=(",", ":"), ensure_ascii=False))


_LEFT, _TOP, _WIDTH, _HEIGHT, _FLOOR, _FAR = 58, 12, 560, 280, -12.0, 5.0


def _x(epsilon: float) -> float:
    return _LEFT + _WIDTH * epsilon / _FAR


def _y(log_delta: float) -> float:
    return _TOP + _HEIGHT * log_delta / _FLOOR


def _path(epsilons: Sequence[float], heights: NDArray[np.float64]) -> str:
    parts: list[str] = []
    for epsilon, height in zip(epsilons, heights, strict=True):
        parts.append(f"{'L' if parts else 'M'}{_x(epsilon):.1f} {_y(float(height)):.1f}")
    return "".join(parts)


def _axes() -> str:
    lines = [f'<rect class="dpt-frame" x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}"/>']
    for power in range(0, -13, -2):
        y = _y(power)
        name = "1" if power == 0 else f'10<tspan class="dpt-up" dy="-5">−{-power}</tspan>'
        lines.append(f'<path class="dpt-grid" d="M{_LEFT} {y:.1f}H{_LEFT + _WIDTH}"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    for epsilon in range(6):
        x = _x(epsilon)
        lines.append(f'<path class="dpt-grid" d="M{x:.1f} {_TOP}V{_TOP + _HEIGHT}"/>')
        lines.append(f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{epsilon}</text>')
    lines.append(f'<text x="{_LEFT + _WIDTH / 2:.0f}" y="{_TOP + _HEIGHT + 38}" text-anchor="middle">ε</text>')
    lines.append(f'<text x="14" y="{_TOP + _HEIGHT / 2:.0f}" text-anchor="middle">δ</text>')
    return "".join(lines)


def _slider(key: str, label: str, values: Sequence[float], position: int) -> str:
    return (
        f'<label class="dpt-row"><span>{label}</span>'
        f'<input type="range" data-key="{key}" min="0" max="{len(values) - 1}" step="1" value="{position}" '
        f'aria-valuetext="{values[position]:g}"><output>{values[position]:g}</output></label>'
    )


_PAGE = """<div class="dpt" role="group" aria-label="Interactive picture: delta against epsilon">
<style>
.dpt{max-width:660px;margin:0 auto;padding:.6rem;border-radius:.5rem;font-size:.95em}
.dpt,.dpt p,.dpt li{background:#fff;color:@INK@}
.dpt svg{width:100%;height:auto;display:block}
.dpt text{fill:currentColor;font-size:14px}
.dpt .dpt-up{font-size:10px}
.dpt .dpt-frame{fill:none;stroke:currentColor;stroke-opacity:.5}
.dpt .dpt-grid{stroke:currentColor;stroke-opacity:.15;fill:none}
.dpt .dpt-curve{fill:none;stroke-width:2.6}
.dpt .dpt-row{display:flex;align-items:center;gap:.8em;margin:.25em 0}
.dpt .dpt-row span{flex:0 0 11em}
.dpt .dpt-row input{flex:1 1 auto;min-width:6em;accent-color:currentColor}
.dpt .dpt-row output{flex:0 0 4em;text-align:right;font-variant-numeric:tabular-nums}
.dpt .dpt-scroll{overflow-x:auto}
@media (max-width:500px){
.dpt .dpt-row{flex-wrap:wrap;gap:0 .8em}
.dpt .dpt-row span{flex:1 1 auto}
.dpt .dpt-row input{order:3;flex:1 0 100%;height:1.8rem}
.dpt .dpt-plot{min-width:520px}
}
.dpt ul{list-style:none;margin:.3em 0;padding:0}
.dpt li{display:flex;align-items:center;gap:.6em;margin:.1em 0}
.dpt li svg{width:34px;flex:0 0 34px}
.dpt .dpt-says{margin:.5em 0 0;min-height:3em}
@RULES@
</style>
@SLIDERS@
<div class="dpt-scroll">
<svg class="dpt-plot" viewBox="0 0 640 336" role="img" aria-label="Delta, on a logarithmic scale, against epsilon">
<defs><clipPath id="dpt-clip"><rect x="58" y="12" width="560" height="280"/></clipPath></defs>
@AXES@<g clip-path="url(#dpt-clip)">@PATHS@</g></svg></div>
<ul>@LEGEND@</ul>
<p class="dpt-says" aria-live="polite"></p>
<script type="application/json" class="dpt-data">@DATA@</script>
<script>
(function () {
  var roots = document.querySelectorAll(".dpt:not([data-ready])");
  Array.prototype.forEach.call(roots, function (root) {
    var holder = root.querySelector(".dpt-data");
    if (!holder) { return; }
    root.setAttribute("data-ready", "1");
    var data = JSON.parse(holder.textContent);
    var inputs = root.querySelectorAll("input");
    var values = [data.alphas, data.sizes, data.records];
    var names = ["II", "III", "IV"];
    function curve(release, at) {
      var total = 0;
      return data.steps[release][at[0]][at[1]][at[2]].map(function (step) { total += step; return total / 1000; });
    }
    function crossing(heights, level) {
      for (var i = 0; i < heights.length; i++) {
        if (heights[i] <= level) {
          if (i === 0) { return "0"; }
          var share = (heights[i - 1] - level) / (heights[i - 1] - heights[i]);
          return (data.epsilons[i - 1] + share * (data.epsilons[i] - data.epsilons[i - 1])).toFixed(2);
        }
      }
      return "more than " + data.epsilons[data.epsilons.length - 1];
    }
    function draw() {
      var at = Array.prototype.map.call(inputs, function (input, i) {
        var shown = String(values[i][+input.value]);
        input.setAttribute("aria-valuetext", shown);
        input.parentNode.querySelector("output").textContent = shown;
        return +input.value;
      });
      var says = names.map(function (name, r) {
        var heights = curve(r, at);
        var d = heights.map(function (h, i) {
          return (i ? "L" : "M") + (58 + 560 * data.epsilons[i] / 5).toFixed(1) + " " +
            (12 + 280 * h / -12).toFixed(1);
        }).join("");
        root.querySelector(".dpt-plot [data-curve='" + r + "']").setAttribute("d", d);
        return name + ": " + crossing(heights, -6);
      });
      root.querySelector(".dpt-says").textContent = "Smallest ε at δ = 10⁻⁶. " + says.join("; ") + ".";
    }
    Array.prototype.forEach.call(inputs, function (input) { input.addEventListener("input", draw); });
    draw();
  });
})();
</script>
</div>"""
