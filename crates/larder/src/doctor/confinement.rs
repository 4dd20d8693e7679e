//! The confinement of the running server.

use super::Finding;
use crate::config::Config;
use crate::run::control::{self, Client};
use crate::sandbox::SandboxReport;

const OFF: &str = "off (`sandbox = true` confines the server to what its settings name)";

/// As the running server says it; the server alone knows which bounds the kernel took.
pub(super) fn sandbox(config: &Config) -> Finding {
    let asked = config.store_folder().map(|folder| Client::new(control::socket(&folder)).read("/sandbox"));
    match asked {
        Some(Ok(report)) => of_running(&report, config.sandbox),
        _ if config.sandbox => Finding::well("sandbox", "on; a running server says which bounds are in force"),
        _ => Finding::well("sandbox", OFF),
    }
}

fn of_running(report: &SandboxReport, is_wanted: bool) -> Finding {
    let mut holds = report.holds.join("; ");
    if !report.programs.is_empty() {
        holds += &format!("; more is open for {}", report.programs.join(", "));
    }
    match (report.is_on, &*report.lacks) {
        (false, _) if is_wanted => {
            Finding::poor("sandbox", "off in the running server", "restart it, for it began without")
        }
        (false, _) => Finding::well("sandbox", OFF),
        (true, []) => Finding::well("sandbox", holds),
        (true, lacks) => Finding::poor("sandbox", holds, format!("not in force: {}", lacks.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn bounds_that_are_not_in_force_are_told() {
        let mut report = SandboxReport { is_on: true, holds: vec!["a bound".to_owned()], ..SandboxReport::default() };
        let found = of_running(&report, true);
        assert_eq!((found.state, found.says), (State::Well, "a bound".to_owned()));
        report.programs.push("wsgi:app".to_owned());
        let found = of_running(&report, true);
        assert_eq!((found.state, &*found.says), (State::Well, "a bound; more is open for wsgi:app"));
        report.lacks.push("files: no Landlock".to_owned());
        let found = of_running(&report, true);
        assert!(found.state == State::Poor && found.remedy.contains("no Landlock"), "{found}");
        report.is_on = false;
        assert_eq!(of_running(&report, true).state, State::Poor);
        assert_eq!(of_running(&report, false).state, State::Well);
    }
}
