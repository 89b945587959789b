"""Bayesian linear regression under differential privacy: noisy sufficient statistics, and posteriors aware of it."""
