//! Queues that are behind at this moment and certificates that are missing, in words, for the page and `larder top`.

use super::Admin;
use crate::acme::CertificateState;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Origins that are named; of more the number.
const NAMED_MAX: usize = 3;

/// A sentence for each kind of thing that is behind with its work; none while all is well.
pub(super) fn behind(admin: &Admin) -> Vec<String> {
    let origins: BTreeSet<String> = {
        let workers = admin.upstream.lock();
        let all = workers.values().flat_map(|stats| &stats.origins);
        all.filter(|origin| origin.is_behind).map(|origin| origin.origin.to_string()).collect()
    };
    let folders = admin.common.cache.disk().map_or(0, |disk| disk.stats().folders_behind);
    let mut all = sentences(&origins, admin.common.workers_behind.load(Ordering::Relaxed), folders);
    all.extend(admin.acme.states().iter().filter_map(without_certificate).take(NAMED_MAX));
    all
}

/// A sentence about a certificate that sites need and could not be had.
fn without_certificate(state: &CertificateState) -> Option<String> {
    let name = state.names.first()?;
    let more = if state.names.len() > 1 { format!(" and {} more", state.names.len() - 1) } else { String::new() };
    match (&state.served, &state.trouble) {
        (None, None) => Some(format!("The certificate for {name}{more} is being ordered: TLS is refused until then.")),
        (None, Some(why)) => Some(format!("There is no certificate for {name}{more}: {why}.")),
        (Some(_), Some(why)) => Some(format!("The certificate for {name}{more} could not be renewed: {why}.")),
        (Some(_), None) => None,
    }
}

fn sentences(origins: &BTreeSet<String>, workers: u64, folders: u64) -> Vec<String> {
    let mut sentences = Vec::new();
    if !origins.is_empty() {
        let named: Vec<&str> = origins.iter().take(NAMED_MAX).map(String::as_str).collect();
        let more = origins.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        sentences.push(format!("Requests wait too long for {}{more}.", named.join(", ")));
    }
    match workers {
        0 => {}
        1 => sentences.push("A worker comes too late to its work.".to_owned()),
        many => sentences.push(format!("{many} workers come too late to their work.")),
    }
    if folders > 0 {
        sentences.push("The disk is behind with its writes: answers pass by it.".to_owned());
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_sentence() {
        let origins = |many: usize| (0..many).map(|number| format!("http://{number}.example:80")).collect();
        let said = |many, workers, folders| sentences(&origins(many), workers, folders).join(" ");
        assert_eq!(said(0, 0, 0), "");
        assert_eq!(said(1, 0, 0), "Requests wait too long for http://0.example:80.");
        let many = said(5, 2, 1);
        for part in ["http://2.example:80 and 2 more.", "2 workers come", "The disk is behind"] {
            assert!(many.contains(part), "{many}");
        }
    }
}
