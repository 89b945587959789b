// Section 1.6: what k releases cost together.
"use strict";

dpx.define("composition", (() => {
  const { totals, pureCompositionDelta, spaced, spacedByFactor } = dpx.numbers, { brief, fixed, power, whole } = dpx.show;
  const NAMES = { sum: "sum", advanced: "advanced composition", zcdp: "zCDP", optimal: "optimal" };
  const LOOKS = { sum: "sum", advanced: "naive", zcdp: "collapsed", optimal: "exact" };
  const counts = [...new Set(spacedByFactor(1, 1000, 61).map((v) => Math.round(Number(v.toPrecision(2)))))];
  const widest = (count) => [20, 50, 200, 500, 1000].find((each) => each >= 1.2 * count) || 1200;

  return {
    title: "Interactive figure: what k releases cost together",
    controls: [
      { key: "count", label: "releases, k", values: counts, show: whole },
      { key: "epsilon", label: "ε of each", values: [...new Set(spacedByFactor(0.01, 1, 41).map((v) => Number(v.toPrecision(2))))] },
      { key: "power", label: "δ", values: spaced(1, 12, 12), show: (v) => power(-v) },
    ],
    legend: Object.keys(NAMES).map((name) => [LOOKS[name], NAMES[name]]),
    panels: [
      {
        label: "Total epsilon against the number of releases, by four accounts",
        drag: "count",
        axes: (state, numbers) => ({ x: [0, widest(state.count)], y: [0, 1.15 * Math.max(numbers.sum, 1.3 * numbers.optimal)], xLabel: "releases k", yLabel: "total ε" }),
        draw(plot, state, numbers) {
          const delta = 10 ** -state.power;
          const at = [...new Set(spaced(1, widest(state.count), 41).map(Math.round))];
          const found = at.map((k) => [k, totals(state.epsilon, k, delta)]);
          for (const name of Object.keys(NAMES)) plot.curve(found.map(([k, each]) => [k, each[name]]), LOOKS[name]);
          plot.grip(state.count, "ink");
          for (const name of Object.keys(NAMES)) plot.dot(state.count, numbers[name], LOOKS[name], 5);
        },
      },
      {
        label: "The smallest delta at each total epsilon, for this many releases",
        axes: (state, numbers) => ({ x: [0, Math.min(numbers.sum, 1.5 * numbers.advanced)], y: [1e-12, 1], logY: true, xLabel: "total ε", yLabel: "δ" }),
        draw(plot, state, numbers) {
          const at = spaced(0, Math.min(numbers.sum, 1.5 * numbers.advanced), 90);
          plot.curve(at.map((total) => [total, Math.max(pureCompositionDelta(state.epsilon, state.count, total), 1e-14)]), "exact");
          plot.rule(10 ** -state.power, "diagonal", "y");
          for (const name of ["advanced", "zcdp", "optimal"]) plot.dot(numbers[name], 10 ** -state.power, LOOKS[name], 6);
          plot.note(0, 10 ** -state.power * 2.5, `δ = ${power(-state.power)}`);
        },
      },
    ],
    says(state, numbers) {
      return `${whole(state.count)} releases at ε = ${brief(state.epsilon)} each, at δ = ${power(-state.power)}. The sum says <b>${fixed(numbers.sum, 2)}</b>,`
        + ` advanced composition ${fixed(numbers.advanced, 2)}, zCDP ${fixed(numbers.zcdp, 2)}, and the best possible account <b>${fixed(numbers.optimal, 2)}</b>,`
        + ` which is ${fixed(100 * numbers.optimal / numbers.sum, 0)} % of the sum.`;
    },
  };
})());
