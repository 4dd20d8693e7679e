//! Verdicts that depended on hooks. A hook may look at all of a request, so that such a verdict holds for requests with the same
//! fields and the same path alone; and for as long as its decision is remembered, by processes of the same version.

use super::HookNote;
use crate::mount::{Hooks, MountState};
use larder_cache::policy::Asked;
use larder_wire::Fields;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::time::Instant;

/// A longer key is made anew for each request.
pub const VERDICT_KEY_BYTES_MAX: usize = 512;

/// The hooks on which a verdict depended.
#[derive(Clone, Debug)]
pub struct HooksRead {
    /// Their processes.
    pub mount: Arc<MountState>,
    /// The version that the filters and the decision are of.
    pub hooks: Arc<Hooks>,
    /// Until when the decision is remembered; `None` where no filter let the request through.
    pub until: Option<Instant>,
}

/// The verdict on a plain GET that hooks let go on.
pub struct HookedVerdict {
    /// The hooks on which it depended.
    pub read: HooksRead,
    /// The request's cache directives.
    pub asked: Asked,
    /// The key with the whole query; `Cache::settle_key` then applies `No-Vary-Search`.
    pub key: Box<[u8]>,
    /// Whether the key is another one than that of the URL without hooks.
    pub is_changed: bool,
    /// A note of their work, where any was called.
    pub note: Option<Box<HookNote>>,
}

impl HookedVerdict {
    /// Whether it holds still.
    pub fn holds(&self) -> bool {
        let HooksRead { mount, hooks, until } = &self.read;
        until.is_none_or(|until| Instant::now() < until) && mount.runs(hooks)
    }
}

/// The facts beside the path on which verdicts with hooks depended.
pub struct HookContext {
    /// The number of all of them together.
    pub number: u64,
    /// That of the fields.
    fields: u64,
}

impl HookContext {
    /// Of requests with these fields, whose other facts have this number.
    pub fn of(hasher: &impl BuildHasher, others: u64, fields: &Fields) -> HookContext {
        let fields = hash_of(hasher, fields);
        HookContext { number: hasher.hash_one((others, fields)), fields }
    }

    /// Whether these are the same fields.
    pub fn covers(&self, hasher: &impl BuildHasher, fields: &Fields) -> bool {
        self.fields == hash_of(hasher, fields)
    }
}

fn hash_of(hasher: &impl BuildHasher, fields: &Fields) -> u64 {
    let mut hashed = hasher.build_hasher();
    for (name, value) in fields.iter() {
        (name, value).hash(&mut hashed);
    }
    fields.len().hash(&mut hashed);
    hashed.finish()
}
