// Section 1.7: sparse vector, one question at a time.
"use strict";

dpx.define("sparse", (() => {
  const { spacedByFactor } = dpx.numbers, { brief, fixed, percent, whole } = dpx.show;
  const { counts, threshold } = dpx.data.workers, last = counts.length;
  const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  let timer = 0;
  const pause = () => { clearTimeout(timer); timer = 0; };
  const asked = (state, numbers) => Math.min(state.step, numbers.answers.length);
  const run = (state, update) => {
    pause();
    const answers = dpx.numbers.sparse(state).answers.length;
    if (still()) { state.step = answers; return; }
    const go = () => {
      state.step = Math.min(state.step + 1, answers);
      update();
      timer = state.step < answers ? setTimeout(go, 70) : 0;
    };
    go();
  };

  return {
    title: "Interactive figure: sparse vector, one question at a time",
    start: { step: 0 },
    changed(state) { pause(); state.step = 0; },
    controls: [
      { key: "epsilon", label: "ε", values: [...new Set(spacedByFactor(0.05, 2, 33).map((v) => Number(v.toPrecision(2))))] },
      { kind: "tick", key: "monotone", label: "the counts are nested, so half the noise on each will do" },
    ],
    buttons: [
      { label: "Next question", press(state) { pause(); state.step = Math.min(state.step + 1, dpx.numbers.sparse(state).answers.length); } },
      { label: "Run to the stop", press: run },
      { label: "New noise", press(state) { pause(); state.seed += 1; state.step = 0; } },
    ],
    legend: [["ink", "exact counts (secret)"], ["laplace", "noisy answers and stop (star)"], ["naive", "noisy threshold (secret)"], ["diagonal", "threshold, 475"], ["band", "noise scale of a count"]],
    panels: [
      {
        label: "Exact counts, the noisy answers so far, and the noisy threshold",
        axes: (state, numbers) => ({ x: [0, 61], y: [Math.min(0, ...numbers.answers), Math.max(560, numbers.noisyBar + 20, ...numbers.answers)], xLabel: "dollars an hour", yLabel: "workers who earn no more" }),
        draw(plot, state, numbers) {
          plot.band(threshold - numbers.query, threshold + numbers.query, "band");
          plot.curve(counts.map((each, k) => [k + 1, each]), "ink");
          plot.rule(threshold, "diagonal", "y");
          if (state.step > 0) plot.rule(numbers.noisyBar, "naive", "y");
          const shown = asked(state, numbers);
          for (let k = 0; k < shown; k++) {
            if (k === numbers.stop) plot.star(k + 1, numbers.answers[k], "laplace"); else plot.dot(k + 1, numbers.answers[k], "laplace", 3.5);
          }
        },
      },
      {
        label: "The probability that the search stops at each question, for this epsilon",
        axes: (state, numbers) => ({ x: [0, 61], y: [0, 1.2 * Math.max(...numbers.law.slice(0, last))], xLabel: "stops at (dollars)", yLabel: "probability" }),
        draw(plot, state, numbers) {
          numbers.law.slice(0, last).forEach((each, k) => plot.bar(k + 0.55, k + 1.45, each, "laplace"));
          plot.rule(numbers.exact + 1, "no");
          plot.note(numbers.exact + 1, 1.12 * Math.max(...numbers.law.slice(0, last)), "exact", "start");
          if (numbers.stop !== null && asked(state, numbers) > numbers.stop) plot.star(numbers.stop + 1, numbers.law[numbers.stop], "laplace");
        },
      },
    ],
    says(state, numbers) {
      const shown = asked(state, numbers);
      const law = `At this ε a search stops within two dollars of the exact answer, ${numbers.exact + 1}, with probability <b>${percent(numbers.near)}</b>.`;
      const scales = `noise scales: ${brief(numbers.bar)} on the threshold, ${brief(numbers.query)} on each count`;
      if (!shown) return `ε = ${brief(state.epsilon)}; ${scales}. Press “Next question”: the threshold gets its noise once, then each count gets fresh noise. ${law}`;
      const answer = numbers.answers[shown - 1], yes = numbers.stop === shown - 1;
      const question = `Question ${shown}: do 475 of 500 earn at most ${shown} dollars? Noisy count ${fixed(answer, 1)}, noisy threshold ${fixed(numbers.noisyBar, 1)}: <b>${yes ? "yes, stop" : "no"}</b>.`;
      const published = yes ? `Published: ${whole(shown - 1)} times no, then yes at <b>${shown} dollars</b>.` : shown === last ? "Published: no to all of them." : `Published so far: no, ${shown === 1 ? "once" : `${whole(shown)} times`}.`;
      return `${question} ${published} Cost: <b>ε = ${brief(state.epsilon)}</b>, however many questions. ${law}`;
    },
  };
})());
