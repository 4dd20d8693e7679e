//! The nursery of scripts: starts the processes of applications in Python, watches them, replaces those that end, ends those that
//! hang, and takes up changed files. Runs on a thread of its own; workers know only the [`Mounts`](crate::mount::Mounts) that it
//! keeps up to date. No request passes through here.

mod ancestry;
mod cgroups;
mod control;
mod descendants;
mod environment;
mod files;
mod group;
mod kept;
mod nursery;
mod orphans;
mod process;
mod stacks;
mod watched;

pub use ancestry::may_be_of_script;
pub use environment::environment_of;
pub use files::{imports, write_library};
pub use nursery::{Loading, Nursery};
pub use process::{bounds, interpreter, pass_log_on, trouble};
