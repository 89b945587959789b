// Section 1.9: what a share costs, against n and against epsilon.
"use strict";

dpx.define("noise", (() => {
  const { errors, spaced, spacedByFactor } = dpx.numbers, { brief, whole } = dpx.show;
  const round = (values, digits) => [...new Set(values.map((v) => Number(v.toPrecision(digits))))];
  const sizes = round(spacedByFactor(10, 1e6, 101), 2), epsilons = round(spacedByFactor(0.01, 10, 61), 2);
  const NAMES = { sampling: "sampling error", laplace: "Laplace noise", gaussian: "Gaussian noise (δ = 10⁻⁶)", response: "randomised response" };
  const marks = (plot, x, numbers) => Object.keys(NAMES).forEach((name) => plot.dot(x, numbers[name], name, 5));

  return {
    title: "Interactive figure: noise against n and epsilon",
    controls: [
      { key: "n", label: "records, n", values: sizes, show: whole },
      { key: "epsilon", label: "ε", values: epsilons },
      { key: "share", label: "share of yes", values: spaced(1, 50, 50), show: (v) => `${v}\u00a0%` },
    ],
    legend: Object.entries(NAMES),
    panels: [
      {
        label: "Standard deviations of a released share against the number of records",
        drag: "n",
        axes: () => ({ x: [10, 1e6], y: [1e-6, 10], logX: true, logY: true, xLabel: "records n", yLabel: "standard deviation" }),
        draw(plot, state, numbers) {
          const scale = errors.gaussian(1, state.epsilon); // found once, then divided by n
          for (const name of Object.keys(NAMES)) {
            plot.curve([10, 1e6].map((n) => [n, name === "gaussian" ? scale / n : errors[name](n, state.epsilon, state.share / 100)]), name);
          }
          plot.grip(state.n, "naive");
          marks(plot, state.n, numbers);
        },
      },
      {
        label: "Standard deviations of a released share against epsilon",
        drag: "epsilon",
        axes: () => ({ x: [0.01, 10], y: [1e-6, 10], logX: true, logY: true, xLabel: "ε", yLabel: "standard deviation" }),
        draw(plot, state, numbers) {
          const at = epsilons.filter((_, i) => i % 2 === 0);
          for (const name of Object.keys(NAMES)) plot.curve(at.map((epsilon) => [epsilon, errors[name](state.n, epsilon, state.share / 100)]), name);
          plot.grip(state.epsilon, "naive");
          marks(plot, state.epsilon, numbers);
        },
      },
    ],
    says(state, numbers) {
      const more = state.n > numbers.even;
      return `${whole(state.n)} records at ε = ${brief(state.epsilon)}: the sampling error of the share is <b>${brief(numbers.sampling)}</b>, Laplace noise adds <b>${brief(numbers.laplace)}</b>,`
        + ` Gaussian noise would add ${brief(numbers.gaussian)}, randomised response ${brief(numbers.response)}.`
        + ` Laplace noise breaks even at <b>${whole(Math.max(numbers.even, 1))}</b> ${numbers.even < 1.5 ? "record" : "records"}, so ${more ? "privacy is the lesser worry here" : "the noise is the larger error here"}:`
        + ` the release is worth <b>${whole(numbers.worth)}</b> exact answers. By randomised response it would be worth ${whole(numbers.responseWorth)}.`;
    },
  };
})());
