//! Checks `[cluster]` as a whole.

use super::Parser;
use crate::config::{ClusterSettings, Listen, read_cluster_secret};

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
        self.check_homes(&cluster);
        for (name, file) in cluster.files() {
            if let Err(error) = std::fs::File::open(file) {
                self.conflict(name, &format!("cannot read {}: {error}", file.display()), None);
            }
        }
    }

    fn check_homes(&mut self, cluster: &ClusterSettings) {
        let Some(listen) = cluster.listen else {
            if !cluster.advertise.is_empty() {
                let hint = "write listen = \"10.0.0.1:4830\" in [cluster]";
                self.conflict("cluster.advertise", "there is no `cluster.listen`", Some(hint));
            }
            return;
        };
        let secret_hint = "`openssl rand -hex 32 > /etc/larder/cluster.secret`, the same file on all nodes";
        match &cluster.secret_file {
            None => self.conflict("cluster.listen", "there is no `cluster.secret_file`", Some(secret_hint)),
            // A file that can't be read is told of below.
            Some(file) if file.exists() => {
                if let Err(trouble) = read_cluster_secret(file) {
                    self.conflict("cluster.secret_file", &trouble, Some(secret_hint));
                }
            }
            Some(_) => {}
        }
        if cluster.advertised(listen).is_none() {
            let hint = "write advertise = \"10.0.0.1:4830\" in [cluster], or listen on that address";
            self.conflict("cluster.listen", "other nodes can't be told an unspecified address", Some(hint));
        }
        let is_public = |other: &Listen| other.address == listen && listen.port() != 0;
        if self.loaded.config.listens.iter().any(is_public) || self.loaded.config.admin == Some(listen) {
            let hint = "choose a port of its own, in a network that nodes alone are in";
            self.conflict("cluster.listen", "clients are served at this address", Some(hint));
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
    fn homes_need_a_secret_and_an_address_that_can_be_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let text = |more: &str| {
            let secret = file.display();
            format!("[cluster]\nnats = [\"nats://127.0.0.1:4222\"]\nsecret_file = \"{secret}\"\n{more}\n")
        };
        std::fs::write(&file, "x".repeat(31)).unwrap();
        let said = problems(&text("listen = \"127.0.0.1:4830\""));
        assert!(said.len() == 1 && said[0].contains("31 bytes"), "{said:?}");
        std::fs::write(&file, format!("{}\n", "x".repeat(32))).unwrap();
        assert_eq!(problems(&text("listen = \"127.0.0.1:4830\"")), Vec::<String>::new());
        assert_eq!(problems(&text("listen = \"0.0.0.0:4830\"\nadvertise = \"a.example:4830\"")), Vec::<String>::new());
        for (more, part) in [
            ("listen = \"0.0.0.0:4830\"", "unspecified"),
            ("listen = \"127.0.0.1:3128\"", "clients are served"),
            ("listen = \"127.0.0.1:3129\"", "clients are served"),
            ("advertise = \"a.example:4830\"", "no `cluster.listen`"),
            ("listen = \"4830\"", "cluster.listen"),
        ] {
            let said = problems(&text(more));
            assert!(said.iter().any(|message| message.contains(part)), "{more}: {said:?}");
        }
        let said = problems("[cluster]\nnats = [\"nats://127.0.0.1:4222\"]\nlisten = \"127.0.0.1:4830\"\n");
        assert!(said.iter().any(|message| message.contains("no `cluster.secret_file`")), "{said:?}");
    }

    #[test]
    fn a_cluster_without_servers_is_none() {
        let said = problems("[cluster]\nname = \"a\"\n");
        assert!(said.len() == 1 && said[0].contains("no cluster without `cluster.nats`"), "{said:?}");
        let said = problems("[cluster]\nnats = [\"nats://user:secret@127.0.0.1:4222\"]\n");
        assert!(said.iter().any(|message| message.contains("nats")), "{said:?}");
    }
}
