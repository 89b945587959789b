// The numbers behind the book's interactive figures, apart from how they are drawn. Each function repeats, in a browser,
// what a function of the package does in Python; tests/book/test_explorables.py runs both and compares them.
"use strict";

globalThis.dpx = globalThis.dpx || {};

dpx.numbers = (() => {
  // Special functions -------------------------------------------------------------------------------------------------

  // The complementary error function: a series of positive terms near 0, a continued fraction farther out.
  function erfc(x) {
    if (x < 0) return 2 - erfc(-x);
    if (x < 2.5) {
      let term = x, sum = x;
      for (let k = 1; term > 1e-17 * sum; k++) { term *= (2 * x * x) / (2 * k + 1); sum += term; }
      return 1 - (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
    }
    if (x > 27) return 0;
    let tail = 0;
    for (let k = 80; k > 0; k--) tail = k / 2 / (x + tail);
    return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + tail);
  }

  const normalCdf = (x) => erfc(-x / Math.SQRT2) / 2;
  const normalPdf = (x) => Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);

  // Lanczos, g = 7.
  const LANCZOS = [0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
  function logGamma(x) {
    if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
    const y = x - 1;
    let sum = LANCZOS[0];
    for (let k = 1; k < 9; k++) sum += LANCZOS[k] / (y + k);
    const t = y + 7.5;
    return 0.5 * Math.log(2 * Math.PI) + (y + 0.5) * Math.log(t) - t + Math.log(sum);
  }
  const logBeta = (a, b) => logGamma(a) + logGamma(b) - logGamma(a + b);

  // The regularised incomplete beta function, by its continued fraction (Lentz).
  function betaCdf(x, a, b) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - betaCdf(1 - x, b, a);
    const tiny = 1e-300, safe = (v) => (Math.abs(v) < tiny ? tiny : v);
    let c = 1, d = 1 / safe(1 - (a + b) * x / (a + 1)), h = d;
    for (let m = 1; m < 500; m++) {
      const even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 / safe(1 + even * d); c = safe(1 + even / c); h *= d * c;
      const odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 / safe(1 + odd * d); c = safe(1 + odd / c);
      const step = d * c;
      h *= step;
      if (Math.abs(step - 1) < 1e-14) break;
    }
    return Math.exp(a * Math.log(x) + b * Math.log1p(-x) - logBeta(a, b)) * h / a;
  }

  // A root of a function that rises (or falls) between low and high.
  function bisect(f, low, high, steps = 80) {
    const rising = f(high) > f(low);
    for (let k = 0; k < steps; k++) {
      const middle = (low + high) / 2;
      if ((f(middle) > 0) === rising) high = middle; else low = middle;
    }
    return (low + high) / 2;
  }

  const spaced = (low, high, count) => Array.from({ length: count }, (_, i) => low + (high - low) * i / (count - 1));
  const spacedByFactor = (low, high, count) => spaced(Math.log(low), Math.log(high), count).map(Math.exp);

  // Mechanisms --------------------------------------------------------------------------------------------------------

  const laplacePdf = (x, scale) => Math.exp(-Math.abs(x) / scale) / (2 * scale);
  const laplaceCdf = (x, scale) => (x < 0 ? Math.exp(x / scale) / 2 : 1 - Math.exp(-x / scale) / 2);

  function gaussianDelta(epsilon, mu) {
    return normalCdf(mu / 2 - epsilon / mu) - Math.exp(epsilon) * normalCdf(-mu / 2 - epsilon / mu);
  }
  // The smallest standard deviation of Gaussian noise on a statistic of sensitivity 1.
  function gaussianScale(epsilon, delta) {
    return Math.exp(bisect((s) => delta - gaussianDelta(epsilon, Math.exp(-s)), Math.log(1e-3), Math.log(1e4)));
  }

  // 1. Epsilon, the odds and the ROC curve ------------------------------------------------------------------------------

  const NOISES = {
    laplace: { name: "Laplace", delta: 0 },
    "gaussian-2": { name: "Gaussian, δ = 10⁻²", delta: 1e-2 },
    "gaussian-6": { name: "Gaussian, δ = 10⁻⁶", delta: 1e-6 },
  };
  const WOMEN = { yes: 2053, no: 2052 }; // the count of the survey, and without her yes

  function noiseLaw(noise, epsilon) {
    const delta = NOISES[noise].delta;
    if (noise === "laplace") {
      const scale = 1 / epsilon;
      return { delta, scale, pdf: (x) => laplacePdf(x, scale), above: (x) => laplaceCdf(-x, scale),
        logRatio: (z) => (Math.abs(z - WOMEN.no) - Math.abs(z - WOMEN.yes)) / scale };
    }
    const scale = gaussianScale(epsilon, delta);
    return { delta, scale, pdf: (x) => normalPdf(x / scale) / scale, above: (x) => normalCdf(-x / scale),
      logRatio: (z) => ((z - WOMEN.no) ** 2 - (z - WOMEN.yes) ** 2) / (2 * scale * scale) };
  }

  // The largest true positive rate that (epsilon, delta) leaves to a tester.
  function rocLimit(alpha, epsilon, delta) {
    const bound = Math.min(Math.exp(epsilon) * alpha + delta, 1 - Math.exp(-epsilon) * (1 - delta - alpha));
    return Math.min(1, Math.max(0, bound));
  }

  function odds({ noise, epsilon, seen, prior }) {
    const law = noiseLaw(noise, epsilon), before = prior / 100;
    const loss = law.logRatio(seen), factor = Math.exp(loss);
    const falsePositive = law.above(seen - WOMEN.no), truePositive = law.above(seen - WOMEN.yes);
    return {
      scale: law.scale, delta: law.delta, loss, factor, most: Math.exp(epsilon),
      after: before * factor / (before * factor + 1 - before),
      falsePositive, truePositive, limit: rocLimit(falsePositive, epsilon, law.delta),
      right: (1 + truePositive - falsePositive) / 2,
      mostRight: (Math.exp(epsilon) + law.delta) / (Math.exp(epsilon) + 1),
    };
  }

  // 2. Noise against n and epsilon ------------------------------------------------------------------------------------

  const errors = {
    sampling: (n, epsilon, share) => Math.sqrt(share * (1 - share) / n),
    laplace: (n, epsilon) => Math.SQRT2 / (n * epsilon),
    gaussian: (n, epsilon) => gaussianScale(epsilon, 1e-6) / n,
    response: (n, epsilon) => Math.exp(epsilon / 2) / (Math.expm1(epsilon) * Math.sqrt(n)),
  };

  function noise({ n, epsilon, share }) {
    const at = share / 100;
    const found = Object.fromEntries(Object.entries(errors).map(([name, of]) => [name, of(n, epsilon, at)]));
    const even = 2 / (epsilon * epsilon * at * (1 - at));
    return { ...found, even, worth: n / (1 + even / n), responseWorth: n / (1 + (found.response / found.sampling) ** 2) };
  }

  // 3. The posterior of a noisy count -----------------------------------------------------------------------------------

  const logFactorials = [0];
  function logFactorial(k) {
    for (let j = logFactorials.length; j <= k; j++) logFactorials.push(logFactorials[j - 1] + Math.log(j));
    return logFactorials[k];
  }
  const logChoose = (n, s) => logFactorial(n) - logFactorial(s) - logFactorial(n - s);

  // The probability of each secret count, given the released number and Laplace noise of scale 1/epsilon.
  function countWeights(released, n, epsilon, alpha, beta) {
    const nearest = Math.min(Math.max(released, 0), n);
    const logs = Array.from({ length: n + 1 }, (_, s) =>
      logChoose(n, s) + logBeta(alpha + s, beta + n - s) - epsilon * Math.abs(nearest - s));
    const top = Math.max(...logs), weights = logs.map((each) => Math.exp(each - top));
    const total = weights.reduce((a, b) => a + b, 0);
    return weights.map((each) => each / total);
  }

  // A mixture of Beta distributions, from weights and parameters.
  function mixture(parts) {
    const kept = parts.filter(([weight]) => weight > 1e-12).map(([w, a, b]) => [w, a, b, logBeta(a, b)]);
    const average = (of) => kept.reduce((sum, part) => sum + part[0] * of(part), 0);
    const pdf = (x) => average(([, a, b, log]) => Math.exp((a - 1) * Math.log(x) + (b - 1) * Math.log1p(-x) - log));
    const cdf = (x) => average(([, a, b]) => betaCdf(x, a, b));
    const mean = average(([, a, b]) => a / (a + b));
    const second = average(([, a, b]) => (a * (a + 1)) / ((a + b) * (a + b + 1)));
    return { pdf, cdf, mean, sd: Math.sqrt(second - mean * mean), quantile: (q) => bisect((x) => cdf(x) - q, 0, 1, 40) };
  }

  function posterior({ released, n, epsilon, prior }) {
    const alpha = prior, beta = prior, counted = Math.min(Math.max(released, 0), n);
    const weights = countWeights(released, n, epsilon, alpha, beta);
    const naive = mixture([[1, alpha + counted, beta + n - counted]]);
    const aware = mixture(weights.map((w, s) => [w, alpha + s, beta + n - s]));
    const summary = (law) => ({ mean: law.mean, sd: law.sd, low: law.quantile(0.025), high: law.quantile(0.975) });
    return { weights, laws: { naive, aware }, naive: summary(naive), aware: summary(aware) };
  }

  // 4. Composition ------------------------------------------------------------------------------------------------------

  function advancedComposition(epsilon, count, delta) {
    const bound = epsilon * Math.sqrt(2 * count * Math.log(1 / delta)) + count * epsilon * Math.tanh(epsilon / 2);
    return Math.min(count * epsilon, bound);
  }

  // min over α of αρ + ln(1/(αδ))/(α-1) + ln(1-1/α); the bound has one valley in ln(α - 1).
  function zcdpEpsilon(rho, delta) {
    const bound = (log) => {
      const excess = Math.exp(log), alpha = 1 + excess;
      return alpha * rho - Math.log(alpha * delta) / excess + Math.log(excess / alpha);
    };
    const plain = rho + 2 * Math.sqrt(rho * Math.log(1 / delta)), golden = (Math.sqrt(5) - 1) / 2;
    const centre = Math.log(Math.sqrt(Math.log(1 / delta) / rho));
    let low = centre - 10, high = centre + 10;
    for (let k = 0; k < 60; k++) {
      const a = high - golden * (high - low), b = low + golden * (high - low);
      if (bound(a) < bound(b)) high = b; else low = a;
    }
    return Math.max(0, Math.min(plain, bound((low + high) / 2)));
  }

  // The exact delta of k pure releases at a total epsilon: a sum over the binomial number of lies.
  function pureCompositionDelta(epsilon, count, total) {
    const truth = count * Math.log1p(Math.exp(epsilon));
    let sum = 0;
    for (let lies = 0; total < (count - 2 * lies) * epsilon; lies++) {
      const log = logChoose(count, lies) + (count - lies) * epsilon - truth;
      sum += Math.exp(log) * -Math.expm1(total - (count - 2 * lies) * epsilon);
    }
    return sum;
  }

  function optimalTotal(epsilon, count, delta) {
    if (pureCompositionDelta(epsilon, count, 0) <= delta) return 0;
    return bisect((total) => delta - pureCompositionDelta(epsilon, count, total), 0, count * epsilon, 45);
  }

  function totals(epsilon, count, delta) {
    return {
      sum: count * epsilon,
      advanced: advancedComposition(epsilon, count, delta),
      zcdp: Math.min(count * epsilon, zcdpEpsilon(count * epsilon * epsilon / 2, delta)),
      optimal: optimalTotal(epsilon, count, delta),
    };
  }
  const composition = ({ epsilon, count, power }) => totals(epsilon, count, 10 ** -power);

  // 5. Clipping: bias and noise -----------------------------------------------------------------------------------------

  // The bias of a total of contributions clipped at a cap, and the standard deviation of its Laplace noise, as shares of
  // the total. `people[t]` people contribute t; with `times` as many people the noise stays what it is.
  function clippingErrors(people, cap, epsilon, times) {
    let total = 0, lost = 0;
    people.forEach((each, t) => { total += each * t; lost += each * Math.max(t - cap, 0); });
    const bias = lost / total, sd = Math.SQRT2 * cap / epsilon / (times * total);
    return { bias, sd, error: Math.hypot(bias, sd) };
  }

  function bestCap(people, epsilon, times) {
    let best = { error: Infinity };
    for (let cap = 1; cap < people.length; cap++) {
      const found = clippingErrors(people, cap, epsilon, times);
      if (found.error < best.error) best = { cap, ...found };
    }
    return best;
  }

  function clipping({ cap, epsilon, times }) {
    const people = dpx.data.visits;
    const above = people.reduce((sum, each, t) => sum + (t > cap ? each : 0), 0);
    return { ...clippingErrors(people, cap, epsilon, times), above: above * times, best: bestCap(people, epsilon, times) };
  }

  // 6. Sparse vector ----------------------------------------------------------------------------------------------------

  const sparseScales = (epsilon, monotone) => ({ bar: 2 / epsilon, query: (monotone ? 2 : 4) / epsilon });

  // The probability of stopping at each query, and of never stopping: the noise of the threshold is averaged over its
  // quantiles, given which all comparisons are independent.
  function stoppingLaw(queries, threshold, epsilon, monotone, points = 2000) {
    const { bar, query } = sparseScales(epsilon, monotone), law = new Array(queries.length + 1).fill(0);
    for (let i = 0; i < points; i++) {
      const u = (i + 0.5) / points;
      const t = threshold + bar * (u < 0.5 ? Math.log(2 * u) : -Math.log(2 * (1 - u)));
      let going = 1 / points;
      for (let k = 0; k < queries.length && going > 1e-15; k++) {
        const pass = laplaceCdf(queries[k] - t, query);
        law[k] += going * pass;
        going *= 1 - pass;
      }
      law[queries.length] += going;
    }
    return law;
  }

  // A small generator with a seed (mulberry32), so that the same steps can be shown again.
  function generator(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }
  const laplaceFrom = (uniform, scale) => {
    const u = uniform() - 0.5;
    return -scale * Math.sign(u) * Math.log(1 - 2 * Math.abs(u));
  };

  // One search: the noisy threshold, every noisy answer up to the stop, and where it stopped (or null).
  function search(queries, threshold, epsilon, monotone, seed) {
    const { bar, query } = sparseScales(epsilon, monotone), uniform = generator(seed);
    const noisyBar = threshold + laplaceFrom(uniform, bar), answers = [];
    for (let k = 0; k < queries.length; k++) {
      answers.push(queries[k] + laplaceFrom(uniform, query));
      if (answers[k] >= noisyBar) return { noisyBar, answers, stop: k };
    }
    return { noisyBar, answers, stop: null };
  }

  function sparse({ epsilon, monotone, seed }) {
    const { counts, threshold } = dpx.data.workers;
    const law = stoppingLaw(counts, threshold, epsilon, monotone);
    const exact = counts.findIndex((each) => each >= threshold);
    const near = law.reduce((sum, each, k) => sum + (k < counts.length && Math.abs(k - exact) <= 2 ? each : 0), 0);
    return { ...sparseScales(epsilon, monotone), ...search(counts, threshold, epsilon, monotone, seed), law, exact, near };
  }

  // What each figure shows before anything is moved; the static figures show the same.
  const START = {
    odds: { noise: "laplace", epsilon: 1, seen: 2054, prior: 50 },
    noise: { n: 1000, epsilon: 0.1, share: 30 },
    posterior: { released: -12.5, n: 199, epsilon: 0.1, prior: 1 },
    composition: { epsilon: 0.1, count: 100, power: 6 },
    clipping: { cap: 52, epsilon: 0.1, times: 1 },
    sparse: { epsilon: 0.2, monotone: true, seed: 1 },
  };

  return {
    START, NOISES, WOMEN, erfc, normalCdf, logGamma, betaCdf, gaussianDelta, gaussianScale, noiseLaw, rocLimit, odds, errors, noise,
    countWeights, mixture, posterior, advancedComposition, zcdpEpsilon, pureCompositionDelta, optimalTotal, totals, composition,
    clippingErrors, bestCap, clipping, sparseScales, stoppingLaw, search, sparse, spaced, spacedByFactor,
  };
})();
