// Section 1.2: epsilon, the two densities, the odds and the ROC curve.
"use strict";

dpx.define("odds", (() => {
  const { NOISES, WOMEN, noiseLaw, rocLimit, spaced } = dpx.numbers, { brief, fixed, percent } = dpx.show;
  const range = [2045, 2060];
  const at = spaced(...range, 301);
  const curve = (law, count) => at.map((z) => [z, law.pdf(z - count)]);

  return {
    title: "Interactive figure: epsilon, the odds and the ROC curve",
    controls: [
      { key: "epsilon", label: "ε", values: spaced(0.1, 4, 40).map((v) => Math.round(10 * v) / 10), show: (v) => fixed(v, 1) },
      { key: "seen", label: "published count", values: spaced(...range, 151).map((v) => Math.round(10 * v) / 10), show: (v) => v.toFixed(1) },
      { key: "prior", label: "belief before", values: spaced(1, 99, 99), show: (v) => `${v}\u00a0%` },
      { kind: "choice", key: "noise", label: "noise", options: Object.entries(NOISES).map(([key, { name }]) => [key, name]) },
    ],
    legend: [["exact", "she said yes"], ["no", "she said no"], ["forbidden", "impossible for any tester"]],
    panels: [
      {
        label: "Densities of the published count if she said yes and if she said no, with the published count marked",
        drag: "seen",
        axes: (state) => ({ x: range, y: [0, Math.max(0.25, 1.15 * noiseLaw(state.noise, state.epsilon).pdf(0))], xLabel: "published count", yLabel: "density", ticksX: [2045, 2049, 2053, 2057].map((v) => [v, String(v)]) }),
        draw(plot, state) {
          const law = noiseLaw(state.noise, state.epsilon);
          plot.area(curve(law, WOMEN.yes), "exact");
          plot.curve(curve(law, WOMEN.yes), "exact");
          plot.curve(curve(law, WOMEN.no), "no");
          plot.grip(state.seen, "naive");
          plot.dot(state.seen, law.pdf(state.seen - WOMEN.yes), "exact");
          plot.dot(state.seen, law.pdf(state.seen - WOMEN.no), "ink");
        },
      },
      {
        label: "ROC curve of a tester who says yes above the marked count, and the region that epsilon and delta forbid",
        axes: () => ({ x: [0, 1], y: [0, 1], xLabel: "false positive rate", yLabel: "true positive rate", ticksX: [0, 0.2, 0.4, 0.6, 0.8, 1], ticksY: [0, 0.2, 0.4, 0.6, 0.8, 1] }),
        draw(plot, state, numbers) {
          const law = noiseLaw(state.noise, state.epsilon), alphas = spaced(0, 1, 201);
          plot.area(alphas.map((a) => [a, rocLimit(a, state.epsilon, law.delta)]), "forbidden", 1);
          plot.curve([[0, 0], [1, 1]], "diagonal");
          const wide = spaced(WOMEN.no - 25 * law.scale, WOMEN.yes + 25 * law.scale, 801);
          plot.curve(wide.map((z) => [law.above(z - WOMEN.no), law.above(z - WOMEN.yes)]), "exact");
          plot.dot(numbers.falsePositive, numbers.truePositive, "naive", 7);
        },
      },
    ],
    says(state, numbers) {
      const beyond = numbers.factor > numbers.most * (1 + 1e-9) || numbers.factor < (1 - 1e-9) / numbers.most;
      return `A published count of <b>${state.seen.toFixed(1)}</b> multiplies the odds that she said yes by <b>${brief(numbers.factor)}</b>`
        + ` (${beyond ? "outside the band of" : "e<sup>ε</sup> allows"} ${brief(1 / numbers.most)} to ${brief(numbers.most)}${beyond ? ", which δ forgives" : ""}).`
        + ` A belief of ${state.prior}\u00a0% becomes <b>${percent(numbers.after)}</b>.`
        + ` A tester who says yes above it has a false positive rate of ${fixed(numbers.falsePositive, 3)} and a true positive rate of`
        + ` <b>${fixed(numbers.truePositive, 3)}</b>, where ${fixed(numbers.limit, 3)} is the limit; she is right ${percent(numbers.right)} of the time, and nobody can be right more than ${percent(numbers.mostRight)}.`;
    },
  };
})());
