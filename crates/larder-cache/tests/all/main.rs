//! All integration tests of the crate as one program: linking is what takes the time.

mod cache;
mod crash;
mod crash_faults;
mod crash_model;
mod crash_purges;
mod disk_hits;
mod evict_golden;
mod evict_rules;
mod extents_model;
mod heads;
mod held_back;
mod in_use;
mod index_model;
mod overload;
mod policy_conditions;
mod policy_laws;
mod policy_storable;
mod policy_usable;
mod policy_validate;
mod policy_vary;
mod policy_words;
mod store;
mod store_log;
mod store_trouble;
mod tier_golden;
mod traces;
