"""Several releases of the same regression's sums are read as one."""

import numpy as np
import pytest

from dpbook import moments, regression, together
from dpbook.moments import NoisySums
from dpbook.regression.fixed_design import FixedDesign
from dpbook.regression.layout import Layout

pytestmark = pytest.mark.filterwarnings("ignore::dpbook.Doubt")

BOUNDS = {"x_bounds": (-2, 2), "y_bounds": (-4, 4)}


def parts(n, epsilons, seed, **options):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(size=n), -2, 2)
    y = 0.5 + x + 0.5 * rng.normal(size=n)
    return [regression.release(x, y, **BOUNDS, epsilon=each, rng=rng, **options) for each in epsilons]


def test_the_likelihood_of_normal_noises_side_by_side_is_that_of_their_mean():
    """Weighted means are sufficient for normal noise, so both differ by a constant, and their gradients by nothing."""
    rng = np.random.default_rng(1)
    layout = Layout(2, True)
    law, n = FixedDesign(layout), np.array([300.0])
    truth = law.mean(0.3 * rng.normal(size=(law.dim, 1)))
    scale = np.array([[3.0], [5.0], [9.0]])
    noisy = n * truth + scale[..., None] * rng.normal(size=(3, 1, layout.size))
    weight = scale[..., None] ** -2
    mean = NoisySums((weight * noisy).sum(axis=0) / weight.sum(axis=0), weight.sum(axis=0)[:, 0] ** -0.5, n, False)
    several = NoisySums(mean.noisy, mean.scale, n, False, (noisy, scale)).side_by_side()
    position = 0.3 * rng.normal(size=(law.dim, 8))
    found = []
    for each, sums in ((law, mean), (moments._SideBySide(law, 3), several)):
        likelihood = moments._Likelihood(each, sums.repeated(8))
        found.append(likelihood.density(np.tile(sums.variance, (8, 1)))(position))
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[0][0] - found[0][0][0], found[1][0] - found[1][0][0], rtol=1e-7, atol=1e-7)


def test_moments_and_latent_records_agree_on_releases_put_together():
    """The normal law of the sums against everyone's record, at n = 50, by 6 pairs: within 0.25 sd, sds by 15 %."""
    pairs = [together(*parts(50, (2.0, 3.0), seed)) for seed in range(6)]
    rng = np.random.default_rng(2)
    normal = regression.infer(pairs, method="moments", draws=800, chains=4, rng=rng)
    exact = regression.infer(pairs, method="records", draws=800, chains=4, rng=rng)
    gap = [(a.mean("theta") - b.mean("theta")) / b.sd("theta") for a, b in zip(normal, exact, strict=True)]
    assert np.sqrt(np.mean(np.square(gap))) < 0.25
    ratio = np.mean([np.log(a.sd("theta") / b.sd("theta")) for a, b in zip(normal, exact, strict=True)], axis=0)
    np.testing.assert_allclose(ratio, 0, atol=0.15)


def test_together_they_say_more_than_each_alone():
    made = [parts(500, (0.4, 0.4), seed) for seed in range(8)]
    rng = np.random.default_rng(3)
    both = regression.infer([together(*each) for each in made], method="fixed-design", draws=400, chains=4, rng=rng)
    alone = regression.infer([each[0] for each in made], method="fixed-design", draws=400, chains=4, rng=rng)
    narrow, wide = (np.median([np.diff(one.interval(0.9, "theta")[1])[0] for one in found]) for found in (both, alone))
    assert narrow < 0.9 * wide


def test_by_default_releases_together_are_read_and_gaussian_ones_by_every_method():
    both = together(*parts(300, (1.0, 2.0), 4))
    prior = regression.NormalInverseGamma([0.0, 0.0], 0.1, 2, 1)
    rng = np.random.default_rng(5)
    assert regression.infer(both, prior, draws=200, chains=4, rng=rng).method == "moments"
    assert "theta" in regression.infer(both, draws=200, chains=4, rng=rng).draws
    with pytest.raises(ValueError, match=r"single one here: 2 of model .*mechanism='gaussian'"):
        regression.infer(both, prior, method="collapsed")
    normal = together(*parts(300, (1.0, 2.0), 6, mechanism="gaussian", delta=1e-6))
    for method in ("collapsed", "gibbs-update", "naive", "exact"):
        assert regression.infer(normal, prior, method=method, draws=100, chains=4, rng=rng).method == method


def test_a_batch_has_equally_many_put_together():
    one, two, three = parts(100, (1.0, 1.0, 1.0), 7)
    with pytest.raises(ValueError, match="equally many are put together"):
        regression.infer([one, together(two, three)])
