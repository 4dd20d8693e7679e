//! `cacheoff list`: what workloads there are.

use crate::workload::{BUILTIN, Builtin, variants};
use std::process::ExitCode;

/// Lists the workloads that come with the program, or prints the file of one.
#[derive(clap::Args, Debug)]
pub struct ListArgs {
    /// Print the file of this one, as a start for your own
    name: Option<String>,
}

impl ListArgs {
    /// Prints.
    pub fn run(&self) -> Result<ExitCode, String> {
        match &self.name {
            None => print!("{}", list()),
            Some(name) => {
                let builtin = Builtin::named(name);
                let builtin =
                    builtin.ok_or_else(|| format!("there is no workload {name}: cacheoff list has them all"))?;
                print!("{}", builtin.text);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list() -> String {
    let mut out = String::new();
    for builtin in BUILTIN {
        let about = builtin.workload(None).map_or_else(|report| report.to_string(), |workload| workload.about);
        out += &format!("{:<16} {about}\n", builtin.name);
        for (variant, about) in variants(builtin.text) {
            out += &format!("  --variant {variant:<15} {about}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_a_line() {
        let list = list();
        assert!(BUILTIN.iter().all(|builtin| list.contains(&format!("{:<16} ", builtin.name))));
    }
}
