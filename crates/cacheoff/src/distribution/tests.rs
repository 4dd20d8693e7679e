use super::*;

fn near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found - wanted).abs() <= tolerance, "{found} is not {wanted} within {tolerance}");
}

fn sample(distribution: Distribution) -> Vec<f64> {
    let mut stream = Stream::named(7, "sample");
    (0..200_000).map(|_| distribution.draw(&mut stream)).collect()
}

fn all() -> Vec<Distribution> {
    let quantiles = Quantiles::new(&[(0.0, 0.0), (0.5, 4.0), (0.9, 64.0), (1.0, 1_024.0)]).unwrap();
    vec![
        Distribution::Constant(3.0),
        Distribution::Uniform(2.0, 8.0),
        Distribution::Exponential(4.5),
        Distribution::Normal(2.5, 1.0),
        Distribution::LogNormal(25.0, 10.0),
        Distribution::Zipf(13.0),
        Distribution::ZipfAlpha(1_000.0, 0.8),
        Distribution::ZipfAlpha(1_000.0, 1.0),
        Distribution::Pareto { low: 1.0, high: 1_000.0, alpha: 1.5 },
        Distribution::Empirical(quantiles),
    ]
}

#[test]
fn means_are_those_of_what_is_drawn() {
    for distribution in all() {
        let drawn = sample(distribution);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        near(mean / distribution.mean(), 1.0, 0.02);
    }
}

#[test]
fn quantiles_are_those_of_what_is_drawn() {
    for distribution in all() {
        let mut drawn = sample(distribution);
        drawn.sort_by(f64::total_cmp);
        for share in [0.1, 0.5, 0.9] {
            let value = distribution.quantile(share);
            let below = drawn.partition_point(|each| *each < value) as f64 / drawn.len() as f64;
            let up_to = drawn.partition_point(|each| *each <= value) as f64 / drawn.len() as f64;
            assert!(below - 0.01 <= share && share <= up_to + 0.01, "{distribution:?} at {share}: {below} to {up_to}");
        }
    }
}

#[test]
fn polygraphs_zipf_has_its_published_means_and_shares() {
    near(Distribution::Zipf(13.0).mean(), 4.454, 0.0005);
    near(Distribution::Zipf(16.0).mean(), 5.174, 0.0005);
    near(Distribution::Zipf(64.0).mean(), 14.851, 0.0005);
    let summed: f64 = (2..=1_000).map(|each| f64::from(each).ln()).sum();
    near(Distribution::Zipf(1_000.0).mean(), 1_000.0 - summed / 1_001.0f64.ln(), 1e-6);
    for (limit, share) in [(13.0, 0.263), (16.0, 0.245), (64.0, 0.166)] {
        let ones = sample(Distribution::Zipf(limit)).iter().filter(|value| **value == 1.0).count();
        near(ones as f64 / 200_000.0, share, 0.003);
    }
}

#[test]
fn log_normal_has_the_published_parameters() {
    let (mu, sigma) = log_parameters(300.0, 300.0);
    near(mu, 5.357, 0.0005);
    near(sigma, 0.8326, 0.0001);
    let (mu, sigma) = log_parameters(25.0, 10.0);
    near(mu, 3.1447, 0.0001);
    near(sigma, 0.3853, 0.0001);
}

#[test]
fn a_normal_value_never_strays_further_than_six_deviations() {
    near(Distribution::Normal(0.0, 1.0).quantile(0.0), -6.0, 1e-6);
    near(Distribution::Normal(0.0, 1.0).quantile(0.8413), 1.0, 0.01);
    let drawn = sample(Distribution::Normal(2.5, 1.0));
    let deviation = (drawn.iter().map(|value| (value - 2.5).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
    near(deviation, 1.0, 0.01);
}

#[test]
fn zipf_with_an_exponent_has_weights_by_rank() {
    for alpha in [0.6, 1.0, 1.2] {
        let drawn = sample(Distribution::ZipfAlpha(10_000.0, alpha));
        let share = |rank: f64| drawn.iter().filter(|value| **value == rank).count() as f64 / drawn.len() as f64;
        let total: f64 = (1..=10_000).map(|rank| f64::from(rank).powf(-alpha)).sum();
        near(share(1.0), 1.0 / total, 0.003);
        near(share(2.0), 2.0f64.powf(-alpha) / total, 0.003);
        near(zipf::harmonic(10_000.0, alpha) / total, 1.0, 1e-9);
        assert!(drawn.iter().all(|rank| (1.0..=10_000.0).contains(rank)));
    }
}

#[test]
fn what_is_cut_above_a_limit_has_a_smaller_mean() {
    let cut = Distribution::Exponential(10.0).mean_up_to(10.0);
    near(cut, 10.0 * (1.0 - (-1.0f64).exp()), 0.02);
    near(Distribution::Uniform(0.0, 1.0).mean_up_to(5.0), 0.5, 0.0);
}

#[test]
fn quantiles_that_make_no_sense_are_refused() {
    assert!(Quantiles::new(&[(0.0, 1.0)]).is_none());
    assert!(Quantiles::new(&[(0.0, 1.0), (0.9, 2.0)]).is_none());
    assert!(Quantiles::new(&[(0.0, 3.0), (1.0, 2.0)]).is_none());
    assert!(Quantiles::new(&[(0.1, 1.0), (1.0, 2.0)]).is_none());
}
