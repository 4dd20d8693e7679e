//! Workloads that come with the program.

use super::{Report, Workload, load};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! builtin {
    ($($name:literal),*) => {
        &[$(Builtin { name: $name, text: include_str!(concat!("../../workloads/", $name, ".toml")) }),*]
    };
}

/// All of them: the standards first, in the order of their years.
pub static BUILTIN: &[Builtin] = builtin!(
    "polymix-1",
    "datacomm-1",
    "polymix-2",
    "polyfill-2",
    "polymix-3",
    "polymix-4",
    "webaxe-4",
    "downtime-2",
    "simple",
    "hammer",
    "tree",
    "web",
    "packages",
    "models",
    "thin-pipes",
    "streams",
    "cms",
    "flash",
    "live",
    "office",
    "faults",
    "replay"
);

impl Builtin {
    /// The one with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BUILTIN.iter().find(|builtin| builtin.name == name)
    }

    /// The workload, in a variant of it if one is named.
    pub fn workload(&self, variant: Option<&str>) -> Result<Workload, Report> {
        load(&format!("{}.toml", self.name), self.text, variant, &[])
    }
}
