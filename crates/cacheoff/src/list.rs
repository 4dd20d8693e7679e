//! `cacheoff list`: what workloads there are.

use crate::workload::{BUILTIN, Builtin, PAGE_WORKLOADS, PageWorkload, variants};
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
                if let Some(workload) = PageWorkload::named(name) {
                    return Err(format!("{} is no file: {}", workload.name, workload.about));
                }
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
    out += "\nfor application servers, in a contest:\n";
    for workload in PAGE_WORKLOADS {
        out += &format!("{:<16} {}\n", workload.name, workload.about);
        for variant in workload.variants {
            out += &format!("  :variant={:<15} {}\n", variant.name, variant.about);
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
        let names =
            BUILTIN.iter().map(|builtin| builtin.name).chain(PAGE_WORKLOADS.iter().map(|workload| workload.name));
        for name in names {
            assert!(list.contains(&format!("{name:<16} ")), "{name}");
        }
    }
}
