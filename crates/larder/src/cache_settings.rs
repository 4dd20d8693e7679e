//! The settings of the store and of the caching rules, made of the configuration.

use crate::config::{CacheMode, Config, PolicySettings};
use larder_cache::cache;
use larder_cache::policy;

/// The store as the configuration wants it.
pub fn cache_settings(config: &Config, seed: u64) -> cache::Settings {
    let defaults = cache::Settings::default();
    cache::Settings {
        memory_bytes: config.memory_bytes,
        memory_object_bytes_max: config.memory_object_bytes_max,
        object_bytes_max: config.object_bytes_max,
        window_bytes: defaults.window_bytes.min(config.memory_bytes / 8),
        policy: policy_settings(&config.policy),
        pass_by_disk: config.overload.pass_by_disk,
        seed,
        ..defaults
    }
}

/// The caching rules for responses of sites.
pub fn site_policy(policy: policy::Settings) -> policy::Settings {
    policy::Settings { targeted: vec!["CDN-Cache-Control".to_owned()], ..policy }
}

/// The caching rules for responses that come by the forward proxy.
pub fn policy_settings(settings: &PolicySettings) -> policy::Settings {
    policy::Settings {
        mode: match settings.mode {
            CacheMode::Shared => policy::Mode::Shared,
            CacheMode::Private => policy::Mode::Private,
        },
        set_cookie: settings.set_cookie,
        heuristic_percent: settings.heuristic_percent,
        heuristic_max_seconds: settings.heuristic_max.as_secs(),
        unlabelled_seconds: settings.unlabelled.as_secs(),
        git: settings.git,
        ..policy::Settings::default()
    }
}

/// The rules for a `larder run`: a run wants the files that it downloads the second time from the store.
pub fn run_policy(config: &Config, policy: policy::Settings) -> policy::Settings {
    policy::Settings {
        unlabelled_file_seconds: config.policy.unlabelled_run.as_secs(),
        unlabelled_named_seconds: config.policy.unlabelled_run_named.as_secs(),
        git: true,
        ..policy
    }
}
