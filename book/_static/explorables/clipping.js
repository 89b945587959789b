// Section 1.3: a cap on contributions, its bias and its noise.
"use strict";

dpx.define("clipping", (() => {
  const { clippingErrors, spacedByFactor } = dpx.numbers, { brief, percent, whole } = dpx.show;
  const people = dpx.data.visits, caps = [...new Set(spacedByFactor(5, 260, 121).map(Math.round))];
  const binned = (width) => {
    const bins = [];
    people.forEach((each, t) => { bins[Math.floor(t / width)] = (bins[Math.floor(t / width)] || 0) + each; });
    return bins;
  };
  const bins = binned(5);

  return {
    title: "Interactive figure: clipping, bias and noise",
    controls: [
      { key: "cap", label: "cap, C", values: caps, show: whole },
      { key: "epsilon", label: "ε per person", values: [...new Set(spacedByFactor(0.01, 2, 47).map((v) => Number(v.toPrecision(2))))] },
      { kind: "choice", key: "times", label: "people", options: [[0.1, "a tenth of them (587)"], [1, "all 5,867"], [10, "ten times as many"]] },
    ],
    legend: [["exact", "error"], ["no", "bias"], ["prior", "noise"]],
    panels: [
      {
        label: "How many people made how many visits; those beyond the cap are clipped to it",
        drag: "cap",
        axes: (state) => ({ x: [0, 215], y: [0.5, Math.max(4000 * state.times, 1000)], logY: true, xLabel: "visits of a person", yLabel: "people" }),
        draw(plot, state) {
          bins.forEach((each, i) => { if (each) plot.bar(5 * i, 5 * i + 4.6, each * state.times, 5 * i < state.cap ? "exact" : "pale"); });
          plot.grip(state.cap, "naive");
        },
      },
      {
        label: "Relative error of the released total against the cap: bias, noise, and both",
        drag: "cap",
        axes: () => ({ x: [5, 260], y: [1e-4, 1], logX: true, logY: true, xLabel: "cap C", yLabel: "error, relative to the total", ticksX: [5, 10, 30, 100, 250].map((v) => [v, String(v)]) }),
        draw(plot, state, numbers) {
          const at = caps.map((cap) => [cap, clippingErrors(people, cap, state.epsilon, state.times)]);
          plot.curve(at.map(([cap, each]) => [cap, Math.max(each.bias, 1e-5)]), "no");
          plot.curve(at.map(([cap, each]) => [cap, each.sd]), "prior");
          plot.curve(at.map(([cap, each]) => [cap, each.error]), "exact");
          plot.star(numbers.best.cap, numbers.best.error, "exact");
          plot.grip(state.cap, "naive");
          plot.dot(state.cap, numbers.error, "naive", 6);
        },
      },
    ],
    says(state, numbers) {
      const best = numbers.best;
      return `A cap of <b>${whole(state.cap)}</b> visits clips ${whole(numbers.above)} ${Math.round(numbers.above) === 1 ? "person" : "people"}: bias <b>${percent(numbers.bias, 1)}</b> of the total,`
        + ` noise <b>${percent(numbers.sd, 1)}</b>, together ${percent(numbers.error, 1)}.`
        + ` At ε = ${brief(state.epsilon)} the best cap (star) is <b>${whole(best.cap)}</b>, with an error of ${percent(best.error, 1)}.`
        + ` You may play with these data because they are public; a curator must not read a cap off secret ones.`;
    },
  };
})());
