//! The condition of an application in one word, for people.

use super::MountState;

/// Whether an application serves, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No process is ready yet; requests wait.
    Loading,
    /// Its newest version serves.
    Serving,
    /// It can't be loaded; requests fail.
    Failed,
    /// Its newest version can't be loaded; the one before serves.
    ServingOld,
}

impl Condition {
    /// All of them.
    pub const ALL: [Condition; 4] = [Condition::Loading, Condition::Serving, Condition::Failed, Condition::ServingOld];

    /// The word in the API, the page and the terminal.
    pub fn as_str(self) -> &'static str {
        match self {
            Condition::Loading => "loading",
            Condition::Serving => "serving",
            Condition::Failed => "failed",
            Condition::ServingOld => "serving-old",
        }
    }

    /// The fate of requests while a process is importing the application, in words.
    pub fn of_requests(self) -> &'static str {
        match self {
            Condition::Loading => "requests wait for it",
            Condition::Failed => "requests fail",
            Condition::Serving | Condition::ServingOld => "what serves goes on",
        }
    }
}

impl MountState {
    /// Its condition at this moment.
    pub fn condition(&self) -> Condition {
        let (is_served, has_failed) = {
            let serving = self.serving.lock();
            (!serving.processes.is_empty(), serving.failed.is_some())
        };
        match (is_served, has_failed) {
            (true, _) if self.report.lock().load_failure.is_some() => Condition::ServingOld,
            (true, _) => Condition::Serving,
            (false, true) => Condition::Failed,
            (false, false) => Condition::Loading,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FailedLoad, Mounts, Process};
    use super::*;
    use crate::config::application::Application;
    use crate::config::{Mount, Python};
    use larder_wire::Host;
    use std::sync::Arc;

    #[test]
    fn an_application_loads_serves_fails_and_goes_on_in_its_old_version() {
        let name = "wsgi:app:application";
        let application = Application::parse(name).unwrap();
        let mount =
            Mount { host: Host::local(name), application, python: Arc::new(Python::default()), routes: Vec::new() };
        let state = Mounts::default().add(Arc::new(mount));
        assert_eq!((state.condition(), state.condition().of_requests()), (Condition::Loading, "requests wait for it"));
        state.load_failed(FailedLoad { traceback: "T".to_owned(), ..FailedLoad::default() });
        state.fail("T".to_owned());
        assert_eq!((state.condition(), state.condition().of_requests()), (Condition::Failed, "requests fail"));
        let (nursery, _told) = tokio::sync::mpsc::channel(1);
        let process = Arc::new(Process::new(1, 4711, "/nowhere".into(), 1, nursery));
        state.note(|report| report.load_failure = None);
        state.serve_by(vec![process]);
        assert_eq!((state.condition(), state.condition().of_requests()), (Condition::Serving, "what serves goes on"));
        state.load_failed(FailedLoad::default());
        assert_eq!(state.condition(), Condition::ServingOld);
        assert!(state.report().load_failure.is_some_and(|failure| !failure.at.is_zero()));
    }
}
