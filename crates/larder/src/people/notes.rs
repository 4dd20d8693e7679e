//! Notes on the users of a configuration, for whoever wrote it: lines of files that count for nobody, and rules about users whom no file has.

use super::login::LoginState;
use crate::config::spelling::closest;
use crate::config::{CertificateUser, Config};
use larder_people::kind::Kind;
use larder_rules::When;
use std::collections::BTreeSet;
use std::sync::Arc;

/// All notes, each with the place that it is about.
pub(super) fn all(config: &Config, logins: &[Arc<LoginState>]) -> Vec<String> {
    let mut notes = Vec::new();
    for login in logins {
        let (files, config) = (login.files(), login.config());
        notes
            .extend(files.warnings.iter().map(|warning| format!("{}: login {}: {warning}", config.place, config.name)));
    }
    notes.extend(of_rules(config, logins).unwrap_or_default());
    notes
}

/// Rules about users and groups that are in no file of a login; `None` where others than files may name users.
fn of_rules(config: &Config, logins: &[Arc<LoginState>]) -> Option<Vec<String>> {
    let is_named_elsewhere = config.helpers.iter().any(|helper| helper.kind == Kind::ExternalAcl)
        || config.listens.iter().any(|listen| listen.clients.user != CertificateUser::None);
    if is_named_elsewhere || logins.is_empty() {
        return None;
    }
    let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for files in logins.iter().map(|login| login.files()) {
        users.extend(files.names()?.into_iter().map(str::to_owned));
        groups.extend(files.groups.names().map(str::to_owned));
    }
    let mut notes = Vec::new();
    for rule in config.rule_table.table.rules() {
        let mut named = Named::default();
        named.collect(&rule.when);
        for (kind, wanted, known) in [("user", named.users, &users), ("group", named.groups, &groups)] {
            for name in wanted.iter().filter(|name| **name != "*" && !known.contains(**name)) {
                let closest = closest(name, known.iter().map(String::as_str));
                let hint = closest.map(|closest| format!(": did you mean {closest:?}?")).unwrap_or_default();
                notes.push(format!(
                    "{rule}: no file of a [[login]] has the {kind} {name:?}, so it holds for nobody of that name{hint}"
                ));
            }
        }
    }
    Some(notes)
}

/// The names in a condition, at any depth.
#[derive(Default)]
struct Named<'r> {
    users: BTreeSet<&'r str>,
    groups: BTreeSet<&'r str>,
}

impl<'r> Named<'r> {
    fn collect(&mut self, when: &'r When) {
        self.users.extend(when.user.iter().map(|user| &**user));
        self.groups.extend(when.group.iter().map(|group| &**group));
        when.not.iter().chain(&when.any).for_each(|nested| self.collect(nested));
    }
}
