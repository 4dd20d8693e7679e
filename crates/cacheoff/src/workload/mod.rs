//! The workload: one TOML file as plain data, parsed once and checked before anything runs.
