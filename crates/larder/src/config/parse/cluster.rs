//! Checks `[cluster]` as a whole.

use super::Parser;
use crate::config::ClusterSettings;

impl Parser {
    pub(super) fn check_cluster(&mut self) {
        let cluster = self.loaded.config.cluster.clone();
        if !cluster.is_on() {
            let said = self.spans.keys().find(|name| name.starts_with("cluster.") && *name != "cluster.nats").cloned();
            // A dump of all settings says their defaults, too.
            if let Some(name) = said.filter(|_| cluster != ClusterSettings::default()) {
                let hint = "write nats = [\"nats://127.0.0.1:4222\"] in [cluster], or leave the section out";
                self.conflict(&name, "there is no cluster without `cluster.nats`", Some(hint));
            }
            return;
        }
        if cfg!(not(feature = "cluster")) {
            let hint = "build it with the feature `cluster`, which is on unless it was switched off";
            self.conflict("cluster.nats", "this larder was built without clusters", Some(hint));
        }
        if cluster.credentials.is_some() && cluster.nkey.is_some() {
            let hint = "`credentials` has a JWT and its seed, `nkey` a seed alone: leave one out";
            self.conflict("cluster.nkey", "there are `cluster.credentials` too", Some(hint));
        }
        if cluster.certificate.is_some() != cluster.key.is_some() {
            let (given, missing) = match cluster.key {
                Some(_) => ("cluster.key", "cluster.certificate"),
                None => ("cluster.certificate", "cluster.key"),
            };
            self.conflict(given, &format!("there is no `{missing}`"), Some("both or none"));
        }
        for (name, file) in cluster.files() {
            if let Err(error) = std::fs::File::open(file) {
                self.conflict(name, &format!("cannot read {}: {error}", file.display()), None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Apart, Loaded};

    fn problems(text: &str) -> Vec<String> {
        let report = Loaded::parse("test", text, &[]).err();
        report.map_or(Vec::new(), |report| report.problems().iter().map(|problem| problem.message.clone()).collect())
    }

    #[test]
    fn a_cluster_is_read() {
        let text = "[cluster]\nnats = [\"nats://127.0.0.1:4222\", \"tls://n.example\"]\nname = \"a\"\nzone = \"east\"\n\
                    address = \"cache-a.example:8080\"\napart = \"refuse\"\n";
        let cluster = Loaded::parse("test", text, &[]).unwrap().config.cluster;
        assert!(cluster.is_on());
        assert_eq!((cluster.nats.len(), &*cluster.name, cluster.apart), (2, "a", Apart::Refuse));
        assert!(!Loaded::parse("test", "", &[]).unwrap().config.cluster.is_on());
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let text = "[cluster]\nnats = [\"nats://127.0.0.1:4222\"]\nname = \"a.b\"\naddress = \"8080\"\napart = \"never\"\n\
                    credentials = \"/no/such\"\nnkey = \"/no/such.nk\"\nkey = \"/no/such.pem\"\n";
        let said = problems(text);
        for part in [
            "cluster.name",
            "cluster.address",
            "cluster.apart",
            "there are `cluster.credentials` too",
            "no `cluster.certificate`",
            "cannot read /no/such:",
            "cannot read /no/such.nk",
            "cannot read /no/such.pem",
        ] {
            assert!(said.iter().any(|message| message.contains(part)), "{part}: {said:?}");
        }
    }

    #[test]
    fn a_cluster_without_servers_is_none() {
        let said = problems("[cluster]\nname = \"a\"\n");
        assert!(said.len() == 1 && said[0].contains("no cluster without `cluster.nats`"), "{said:?}");
        let said = problems("[cluster]\nnats = [\"nats://user:secret@127.0.0.1:4222\"]\n");
        assert!(said.iter().any(|message| message.contains("nats")), "{said:?}");
    }
}
