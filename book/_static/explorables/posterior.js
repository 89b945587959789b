// Section 1.11: the naive and the noise-aware posterior of a noisy count.
"use strict";

dpx.define("posterior", (() => {
  const { spaced, spacedByFactor } = dpx.numbers, { brief, fixed, whole } = dpx.show;
  const grid = spaced(0.0005, 0.9995, 500);
  const reach = (n) => Math.ceil(0.35 * n);
  const released = { key: "released", label: "released count, z", values: spaced(-70, 269, 679), show: (v) => fixed(v, 1) };
  const interval = ({ low, high }) => `${fixed(low, 3)} to ${fixed(high, 3)}`;

  return {
    title: "Interactive figure: two posteriors from one noisy count",
    controls: [
      released,
      { key: "epsilon", label: "ε", values: [...new Set(spacedByFactor(0.02, 2, 41).map((v) => Number(v.toPrecision(2))))] },
      { key: "prior", label: "prior, α = β", values: [1, 2, 5, 10, 20, 50] },
    ],
    legend: [["naive", "naive"], ["exact", "noise-aware (exact)"], ["prior", "prior"]],
    panels: [
      {
        label: "Probability of each secret count given the released one, which can be dragged outside the possible counts",
        drag: "released",
        axes: (state, numbers) => ({ x: [-reach(state.n), state.n + reach(state.n)], y: [0, 1.15 * Math.max(...numbers.weights)], xLabel: "secret count s, and the released z", yLabel: "probability of s" }),
        draw(plot, state, numbers) {
          plot.rule(0, "diagonal");
          plot.rule(state.n, "diagonal");
          numbers.weights.forEach((weight, s) => plot.bar(s - 0.5, s + 0.5, weight, "exact"));
          plot.grip(state.released, "naive");
        },
      },
      {
        label: "Naive and noise-aware posterior densities of the share",
        axes: (state, numbers) => {
          const tallest = Math.max(...grid.map((x) => numbers.laws.aware.pdf(x)), 4);
          const naive = Math.max(...grid.map((x) => numbers.laws.naive.pdf(x)));
          return { x: [0, 1], y: [0, 1.1 * Math.min(naive, Math.max(3 * tallest, 16))], xLabel: "share θ", yLabel: "density", ticksX: [0, 0.2, 0.4, 0.6, 0.8, 1] };
        },
        draw(plot, state, numbers) {
          for (const [law, look] of [[numbers.laws.aware, "exact"], [numbers.laws.naive, "naive"]]) {
            const points = grid.map((x) => [x, law.pdf(x)]);
            plot.area(points, look);
            plot.curve(points, look);
          }
          const prior = dpx.numbers.mixture([[1, state.prior, state.prior]]);
          plot.curve(grid.map((x) => [x, prior.pdf(x)]), "prior");
        },
      },
    ],
    says(state, numbers) {
      const outside = state.released < 0 || state.released > state.n;
      return `Released: <b>${fixed(state.released, 1)}</b> of ${whole(state.n)}, noise scale ${brief(1 / state.epsilon)}.`
        + (outside ? ` No count can be there; the naive analyst reads ${state.released < 0 ? 0 : whole(state.n)}.` : "")
        + ` Naive: mean ${fixed(numbers.naive.mean, 3)}, 95 % interval <b>${interval(numbers.naive)}</b>.`
        + ` Noise-aware: mean ${fixed(numbers.aware.mean, 3)}, 95 % interval <b>${interval(numbers.aware)}</b>, ${brief(numbers.aware.sd / numbers.naive.sd)} times as wide by standard deviations.`;
    },
  };
})());
