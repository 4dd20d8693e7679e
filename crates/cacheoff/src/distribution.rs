//! Distributions that workloads draw from, with their means and quantiles.
