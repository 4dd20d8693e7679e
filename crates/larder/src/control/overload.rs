//! Queues that are behind at this moment, in words, for the page and `larder top`.

use super::Admin;
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
    sentences(&origins, admin.common.workers_behind.load(Ordering::Relaxed), folders)
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
