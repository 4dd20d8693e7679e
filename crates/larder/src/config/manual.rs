//! Texts for people about settings: the reference, one setting, and the values that hold now.

use super::bandwidth::BandwidthSettings;
use super::mirrors::any_mirror;
use super::names;
use super::parent::{Parent, Sibling};
use super::parse::{Loaded, ValueSource, any_route, any_site};
use super::rule::{RULE, RULE_DO, RULE_WHEN, RuleDo, RuleSettings};
use super::setting::{ChangesAt, Setting};
use super::spelling::closest;
use super::table::{
    BANDWIDTH, HELPER, ICAP, LIST, LISTEN, LISTEN_TLS, LOGIN, MIRROR, ORIGIN, ORIGIN_CHECK, ORIGIN_EJECT, ORIGIN_HEDGE,
    ORIGIN_MEMBER, ORIGIN_RETRY, PARENT, PYTHON, SETTINGS, SIBLING, SITE, SITE_ROUTE, STORE_RULE,
};
use super::{
    CertificateFiles, Config, Helper, Icap, List, Listen, Login, Mirror, OriginGroup, OriginMember, Python, Site,
    SiteRoute, StoreRule,
};
use larder_rules::When;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The introduction of the reference.
const INTRODUCTION: &str = "# Settings

This page is made from the table that the parser uses; `larder config --markdown` prints it.

Larder reads one TOML file: the one of `--config FILE`, else the first of `./larder.toml`,
`$XDG_CONFIG_HOME/larder/larder.toml` (`~/.config/larder/larder.toml`) and `/etc/larder/larder.toml`; `--config none` reads
none, and `larder run` passes over the one in the current folder. Nothing in it is required: what is left out has its default.
`larder check` shows everything that is wrong with it, `larder config` prints what holds and where it was said,
`larder config NAME` explains a setting, or all of a table. Flags go over the file.

Sizes: `kB`, `MB`, `GB`, `TB` are powers of 1000, `KiB`, `MiB`, `GiB`, `TiB` powers of 1024, a number alone is bytes.
Durations: `250ms`, `30s`, `5m`, `2h`, `1d`. `none` stands for no limit.
A change takes effect at a reload (`larder reload`, or SIGHUP) or at a restart, as the table says.
A relative path is one from the folder in which Larder was started (`include`: from the folder of its file); a service best names whole paths.
Secrets are best kept elsewhere: `${ENV:NAME}` takes one from the environment, `${FILE:/path}` from a file.
";

/// Before the table of store rules.
const ABOUT_STORE_RULES: &str = "
A store rule says what is known of things that are downloaded. Of the rules that match a request, the first that says something of the key
decides the key, and the first that says something of lifetimes decides these; a configuration's own come before those of [presets](presets.md).
";

/// The tables in an `[[origin]]`.
const PARTS_OF_ORIGIN: [(&str, &[Setting<OriginGroup>]); 4] =
    [("check", ORIGIN_CHECK), ("eject", ORIGIN_EJECT), ("retry", ORIGIN_RETRY), ("hedge", ORIGIN_HEDGE)];

/// A group with all that it can have.
fn any_group() -> OriginGroup {
    OriginGroup { check: Some(Default::default()), hedge: Some(Default::default()), ..OriginGroup::default() }
}

/// Before the tables of rules.
const ABOUT_RULES: &str = "
Rules are tried in the order of the files and their lines ([rules.md](rules.md)). In `when` all matchers have to hold, and of the values of one any
suffices; `field = { NAME = VALUE }` asks about any field, `not = { … }` and `any = [{ … }, { … }]` nest.
";

/// The whole reference, as it stands in `docs/settings.md`.
pub fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    let config = Config { workers: 1, ..Config::default() };
    let listen = Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 3128)));
    let files = CertificateFiles { chain: PathBuf::new(), key: PathBuf::new() };
    section(&mut out, "Top of the file", SETTINGS, &config, |name| !name.contains('.'));
    section(&mut out, "`[[listen]]`, any number", LISTEN, &listen, |_| true);
    section(&mut out, "`tls` of a `[[listen]]`, any number", LISTEN_TLS, &files, |_| true);
    section(&mut out, "`[[site]]`, any number", SITE, &any_site(), |_| true);
    section(&mut out, "`route` of a `[[site]]`, any number", SITE_ROUTE, &any_route(), |_| true);
    section(&mut out, "`[[mirror]]`, any number", MIRROR, &any_mirror(), |_| true);
    section(&mut out, "`[[list]]`, any number", LIST, &List::default(), |_| true);
    let bandwidth = BandwidthSettings { rate: 1, ..BandwidthSettings::default() };
    section(&mut out, "`[[bandwidth]]`, any number", BANDWIDTH, &bandwidth, |_| true);
    section(&mut out, "`[[parent]]`, any number", PARENT, &Parent::default(), |_| true);
    section(&mut out, "`[[sibling]]`, any number", SIBLING, &Sibling::default(), |_| true);
    section(&mut out, "`[[python]]`, any number", PYTHON, &Python::default(), |_| true);
    let group = any_group();
    section(&mut out, "`[[origin]]`, any number", ORIGIN, &group, |_| true);
    section(&mut out, "`members` of an `[[origin]]`", ORIGIN_MEMBER, &OriginMember::default(), |_| true);
    for (name, settings) in PARTS_OF_ORIGIN {
        section(&mut out, &format!("`{name}` of an `[[origin]]`"), settings, &group, |_| true);
    }
    section(&mut out, "`[[icap]]`, any number", ICAP, &Icap::default(), |_| true);
    section(&mut out, "`[[helper]]`, any number", HELPER, &Helper::default(), |_| true);
    section(&mut out, "`[[login]]`, any number", LOGIN, &Login::default(), |_| true);
    out.push_str(ABOUT_STORE_RULES);
    section(&mut out, "`[[store_rule]]`, any number", STORE_RULE, &StoreRule::default(), |_| true);
    out.push_str(ABOUT_RULES);
    section(&mut out, "`[[rule]]`, any number", RULE, &RuleSettings::default(), |_| true);
    section(&mut out, "`when` of a `[[rule]]`", RULE_WHEN, &When::default(), |_| true);
    section(&mut out, "`do` of a `[[rule]]`", RULE_DO, &RuleDo::default(), |_| true);
    let mut sections: Vec<&str> = Vec::new();
    for (name, _) in SETTINGS.iter().filter_map(|setting| setting.name.split_once('.')) {
        if !sections.contains(&name) {
            sections.push(name);
        }
    }
    for name in sections {
        let begins = |setting: &str| setting.split_once('.').is_some_and(|(section, _)| section == name);
        section(&mut out, &format!("`[{name}]`"), SETTINGS, &config, begins);
    }
    out
}

fn section<T: Clone>(out: &mut String, title: &str, settings: &[Setting<T>], like: &T, only: impl Fn(&str) -> bool) {
    let _ = write!(out, "\n## {title}\n\n| setting | takes | default | changes at | |\n|---|---|---|---|---|\n");
    for setting in settings.iter().filter(|setting| only(setting.name)) {
        let range = setting.range().map_or_else(String::new, |(low, high)| format!(", {low} to {high}"));
        let (key, form, default, about) = (setting.key(), setting.form(), setting.default(like), setting.about);
        let changes = setting.changes_at.as_str();
        let _ = writeln!(out, "| `{key}` | {form}{range} | {default} | {changes} | {about} |");
    }
}

/// The name of a setting that was probably meant.
pub fn nearest(name: &str) -> Option<&'static str> {
    let names = names::all();
    let whole = closest(name, names.clone());
    whole.or_else(|| names.clone().find(|each| closest(name, each.rsplit('.').take(1)).is_some()))
}

/// All there is to say about the setting `name`: a whole name, a part of it, or a table. `None` when there is none.
pub fn explain(name: &str, loaded: &Loaded) -> Option<String> {
    let mut out = String::new();
    let asked =
        |full: &str| full == name || full.split('.').any(|part| part == name) || full.starts_with(&format!("{name}."));
    let default = Config::default();
    for setting in SETTINGS.iter().filter(|setting| asked(setting.name)) {
        entry(&mut out, setting, &default);
        let place = place(loaded.sources.get(setting.name));
        let is_computed = matches!(loaded.sources.get(setting.name), Some(ValueSource::Computed(_)));
        let value = setting.show(&loaded.config);
        let value = if is_computed && value == NO_LIMIT { "no limit" } else { &value };
        let _ = writeln!(out, "  now      {value} ({place})");
    }
    let files = CertificateFiles { chain: PathBuf::new(), key: PathBuf::new() };
    let listen = Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 3128)));
    LISTEN.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &listen));
    LISTEN_TLS.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &files));
    SITE.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &any_site()));
    SITE_ROUTE.iter().filter(|setting| asked(setting.name)).for_each(|each| entry(&mut out, each, &any_route()));
    let rule = StoreRule::default();
    STORE_RULE.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &rule));
    MIRROR.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &any_mirror()));
    let list = List::default();
    LIST.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &list));
    let parent = Parent::default();
    PARENT.iter().filter(|setting| asked(setting.name)).for_each(|each| entry(&mut out, each, &parent));
    let sibling = Sibling::default();
    SIBLING.iter().filter(|setting| asked(setting.name)).for_each(|each| entry(&mut out, each, &sibling));
    let bandwidth = BandwidthSettings::default();
    BANDWIDTH.iter().filter(|setting| asked(setting.name)).for_each(|each| entry(&mut out, each, &bandwidth));
    let python = Python::default();
    PYTHON.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &python));
    let group = any_group();
    let of_group = ORIGIN.iter().chain(PARTS_OF_ORIGIN.iter().flat_map(|(_, of)| *of));
    of_group.filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &group));
    let member = OriginMember::default();
    ORIGIN_MEMBER.iter().filter(|setting| asked(setting.name)).for_each(|each| entry(&mut out, each, &member));
    ICAP.iter().filter(|setting| asked(setting.name)).for_each(|each| entry(&mut out, each, &Icap::default()));
    let rule = RuleSettings::default();
    RULE.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &rule));
    RULE_WHEN.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &rule.when));
    RULE_DO.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &rule.does));
    let (helper, login) = (Helper::default(), Login::default());
    HELPER.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &helper));
    LOGIN.iter().filter(|setting| asked(setting.name)).for_each(|setting| entry(&mut out, setting, &login));
    (!out.is_empty()).then_some(out)
}

fn entry<T: Clone>(out: &mut String, setting: &Setting<T>, like: &T) {
    let range = setting.range().map_or_else(String::new, |(low, high)| format!(", {low} to {high}"));
    let gap = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{gap}{}\n  {}", setting.name, setting.about);
    let (form, default) = (setting.form(), setting.default(like).replace('`', ""));
    let _ = writeln!(
        out,
        "  takes    {form}{range}\n  default  {default}\n  changes  at a {}",
        setting.changes_at.as_str()
    );
}

/// A setting that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InForce {
    /// Its name.
    pub name: String,
    /// Its value, as TOML.
    pub value: String,
    /// Where it was said.
    pub said: String,
    /// When a change of it takes effect: `reload` or `restart`.
    pub changes_at: &'static str,
    /// Name and value for a report that strangers read (`larder bugreport`).
    #[serde(skip)]
    pub reported: (String, String),
}

/// All settings that hold. Those of listeners and sites have a number in their name.
pub fn in_force(config: &Config, sources: &BTreeMap<&'static str, ValueSource>) -> Vec<InForce> {
    let mut all = Vec::new();
    for setting in SETTINGS {
        all.push(one(setting, setting.name.to_owned(), config, place(sources.get(setting.name))));
    }
    for (number, listen) in config.listens.iter().enumerate() {
        let name = |setting: &Setting<Listen>| format!("listen.{number}.{}", setting.key());
        all.extend(LISTEN.iter().map(|each| one(each, name(each), listen, place(sources.get("listen")))));
    }
    for (number, site) in config.sites.all().enumerate() {
        let name = |setting: &Setting<Site>| format!("site.{number}.{}", setting.key());
        all.extend(SITE.iter().map(|each| one(each, name(each), site, place(sources.get("site")))));
        for (at, route) in site.routes.iter().enumerate() {
            let name = |setting: &Setting<SiteRoute>| format!("site.{number}.route.{at}.{}", setting.key());
            all.extend(SITE_ROUTE.iter().map(|each| one(each, name(each), route, place(sources.get("site")))));
        }
    }
    for (number, rule) in config.store_rules.iter().enumerate() {
        let name = |setting: &Setting<StoreRule>| format!("store_rule.{number}.{}", setting.key());
        all.extend(STORE_RULE.iter().map(|each| one(each, name(each), rule, rule.place.to_string())));
    }
    for (number, mirror) in config.mirrors.iter().enumerate() {
        let name = |setting: &Setting<Mirror>| format!("mirror.{number}.{}", setting.key());
        all.extend(MIRROR.iter().map(|each| one(each, name(each), &**mirror, place(sources.get("mirror")))));
    }
    for (number, list) in config.lists.iter().enumerate() {
        let name = |setting: &Setting<List>| format!("list.{number}.{}", setting.key());
        all.extend(LIST.iter().map(|each| one(each, name(each), &**list, list.place.to_string())));
    }
    for (number, parent) in config.parents.iter().enumerate() {
        let name = |setting: &Setting<Parent>| format!("parent.{number}.{}", setting.key());
        all.extend(PARENT.iter().map(|each| one(each, name(each), &**parent, parent.place.to_string())));
    }
    for (number, sibling) in config.siblings.iter().enumerate() {
        let name = |setting: &Setting<Sibling>| format!("sibling.{number}.{}", setting.key());
        all.extend(SIBLING.iter().map(|each| one(each, name(each), &**sibling, sibling.place.to_string())));
    }
    for (number, bandwidth) in config.bandwidths.iter().enumerate() {
        let name = |setting: &Setting<BandwidthSettings>| format!("bandwidth.{number}.{}", setting.key());
        all.extend(BANDWIDTH.iter().map(|each| one(each, name(each), &**bandwidth, bandwidth.place.to_string())));
    }
    for (number, python) in config.pythons.iter().enumerate() {
        let name = |setting: &Setting<Python>| format!("python.{number}.{}", setting.key());
        all.extend(PYTHON.iter().map(|each| one(each, name(each), &**python, python.place.to_string())));
    }
    for (number, group) in config.origins.iter().enumerate() {
        all.extend(of_group(number, group));
    }
    for (number, icap) in config.icaps.iter().enumerate() {
        let name = |setting: &Setting<Icap>| format!("icap.{number}.{}", setting.key());
        all.extend(ICAP.iter().map(|each| one(each, name(each), &**icap, icap.place.to_string())));
    }
    for (number, rule) in config.rules.iter().enumerate() {
        let (name, changes_at) = (format!("rule.{number}"), ChangesAt::Reload.as_str());
        let reported = (name.clone(), "(set)".to_owned());
        all.push(InForce { name, value: rule.lines(), said: rule.place.to_string(), changes_at, reported });
    }
    for (number, helper) in config.helpers.iter().enumerate() {
        let name = |setting: &Setting<Helper>| format!("helper.{number}.{}", setting.key());
        all.extend(HELPER.iter().map(|each| one(each, name(each), &**helper, helper.place.to_string())));
    }
    for (number, login) in config.logins.iter().enumerate() {
        let name = |setting: &Setting<Login>| format!("login.{number}.{}", setting.key());
        all.extend(LOGIN.iter().map(|each| one(each, name(each), &**login, login.place.to_string())));
    }
    all
}

fn of_group(number: usize, group: &OriginGroup) -> Vec<InForce> {
    let (prefix, said) = (format!("origin.{}", group.name), group.place.to_string());
    let settings = ORIGIN.iter().map(|each| (each, format!("{prefix}.{}", each.key())));
    let parts = PARTS_OF_ORIGIN.iter().filter(|(part, _)| has_part(group, part));
    let parts = parts.flat_map(|(part, of)| of.iter().map(move |each| (each, part)));
    let parts = parts.map(|(each, part)| (each, format!("{prefix}.{part}.{}", each.key())));
    let mut all: Vec<InForce> =
        settings.chain(parts).map(|(each, name)| one(each, name, group, said.clone())).collect();
    for (at, member) in group.members.iter().enumerate() {
        let name = |setting: &Setting<OriginMember>| format!("{prefix}.member.{at}.{}", setting.key());
        all.extend(ORIGIN_MEMBER.iter().map(|each| one(each, name(each), &**member, said.clone())));
    }
    // A group is called by its name here, which is not for strangers.
    for setting in &mut all {
        setting.reported.0 = format!("origin.{number}{}", &setting.name[prefix.len()..]);
    }
    all
}

fn has_part(group: &OriginGroup, part: &str) -> bool {
    match part {
        "check" => group.check.is_some(),
        "hedge" => group.hedge.is_some(),
        _ => true,
    }
}

fn one<T: Clone>(setting: &Setting<T>, name: String, of: &T, said: String) -> InForce {
    let reported = (name.clone(), setting.reported(of));
    InForce { name, value: setting.show(of), said, changes_at: setting.changes_at.as_str(), reported }
}

/// Settings whose values differ.
pub fn differences(old: &Config, new: &Config) -> Vec<&'static Setting<Config>> {
    Setting::differing(SETTINGS, old, new)
}

fn listens(out: &mut String, loaded: &Loaded) {
    let source = place(loaded.sources.get("listen"));
    for listen in &loaded.config.listens {
        let _ = writeln!(out, "\n[[listen]] # {source}");
        entries(out, LISTEN, listen, |setting| match setting {
            "listen.origin" => listen.origin.is_some(),
            "listen.client_ca" => listen.clients.authorities.is_some(),
            "listen.client_crl" => listen.clients.revoked.is_some(),
            _ => true,
        });
        for files in &listen.tls {
            let _ = writeln!(out, "\n[[listen.tls]]");
            entries(out, LISTEN_TLS, files, |_| true);
        }
    }
}

/// The values that hold, as a TOML file that says the same, each line with the place that set it.
pub fn dump(loaded: &Loaded) -> String {
    let mut out = String::new();
    let mut section = "";
    for setting in SETTINGS.iter().filter(|setting| !setting.name.contains('.')) {
        line(&mut out, setting, loaded);
    }
    for setting in SETTINGS {
        let Some((inside, _)) = setting.name.split_once('.') else { continue };
        if inside != section {
            section = inside;
            let _ = writeln!(out, "\n[{section}]");
        }
        line(&mut out, setting, loaded);
    }
    listens(&mut out, loaded);
    let source = place(loaded.sources.get("site"));
    for site in loaded.config.sites.all() {
        let _ = writeln!(out, "\n[[site]] # {source}");
        entries(&mut out, SITE, site, |setting| setting != "site.python" || !site.python.is_empty());
        for route in &site.routes {
            let _ = writeln!(out, "\n[[site.route]]");
            entries(&mut out, SITE_ROUTE, route, |_| true);
        }
    }
    let like = StoreRule::default();
    for rule in &loaded.config.store_rules {
        let _ = writeln!(out, "\n[[store_rule]] # {}", rule.place);
        for setting in STORE_RULE.iter().filter(|setting| !setting.is_equal(rule, &like)) {
            let _ = writeln!(out, "{} = {}", setting.key(), setting.show(rule));
        }
    }
    for rule in &*loaded.config.rules {
        let _ = write!(out, "\n[[rule]] # {}\n{}", rule.place, rule.lines());
    }
    let source = place(loaded.sources.get("mirror"));
    for mirror in &loaded.config.mirrors {
        let _ = writeln!(out, "\n[[mirror]] # {source}");
        entries(&mut out, MIRROR, &**mirror, |setting| setting != "mirror.credentials");
    }
    dump_named_by_rules(&mut out, &loaded.config);
    for python in &loaded.config.pythons {
        let _ = writeln!(out, "\n[[python]] # {}", python.place);
        let is_shown = |setting: &str| match setting {
            "python.interpreter" => python.interpreter.is_some(),
            // Its values may be secrets, and without them it can't be read again.
            "python.environment" => python.environment.is_empty(),
            _ => true,
        };
        entries(&mut out, PYTHON, &**python, is_shown);
    }
    config_of_groups(&mut out, &loaded.config);
    for icap in &loaded.config.icaps {
        let _ = writeln!(out, "\n[[icap]] # {}", icap.place);
        entries(&mut out, ICAP, &**icap, |_| true);
    }
    dump_people(loaded, &mut out);
    out
}

/// Lists and limits, which rules name.
fn dump_named_by_rules(out: &mut String, config: &Config) {
    for list in &config.lists {
        let _ = writeln!(out, "\n[[list]] # {}", list.place);
        entries(out, LIST, &**list, |setting| setting != "list.sha256" || list.sha256.is_some());
    }
    for parent in &config.parents {
        let _ = writeln!(out, "\n[[parent]] # {}", parent.place);
        entries(out, PARENT, &**parent, |_| true);
    }
    for sibling in &config.siblings {
        let _ = writeln!(out, "\n[[sibling]] # {}", sibling.place);
        entries(out, SIBLING, &**sibling, |_| true);
    }
    for bandwidth in &config.bandwidths {
        let _ = writeln!(out, "\n[[bandwidth]] # {}", bandwidth.place);
        entries(out, BANDWIDTH, &**bandwidth, |setting| setting != "bandwidth.burst" || bandwidth.burst.is_some());
    }
}

fn config_of_groups(out: &mut String, config: &Config) {
    for group in &config.origins {
        let _ = writeln!(out, "\n[[origin]] # {}", group.place);
        entries(out, ORIGIN, &**group, |_| true);
        for (part, settings) in PARTS_OF_ORIGIN.iter().filter(|(part, _)| has_part(group, part)) {
            let _ = writeln!(out, "\n[origin.{part}]");
            let has_host = group.check.as_ref().is_some_and(|check| check.host.is_some());
            entries(out, settings, &**group, |name| name != "origin.check.host" || has_host);
        }
        for member in &group.members {
            let _ = writeln!(out, "\n[[origin.member]]");
            // A name that is the URL is written by the URL alone.
            let is_named = member.name != super::url::show(&member.url);
            entries(out, ORIGIN_MEMBER, &**member, |name| name != "origin.member.name" || is_named);
        }
    }
}

fn dump_people(loaded: &Loaded, out: &mut String) {
    for helper in &loaded.config.helpers {
        let _ = writeln!(out, "\n[[helper]] # {}", helper.place);
        let is_shown = |setting: &str| match setting {
            "helper.format" => helper.format.is_some(),
            // Its values may be secrets, and without them it can't be read again.
            "helper.environment" => helper.environment.is_empty(),
            _ => true,
        };
        entries(out, HELPER, &**helper, is_shown);
    }
    for login in &loaded.config.logins {
        let _ = writeln!(out, "\n[[login]] # {}", login.place);
        let is_shown = |setting: &str| match setting {
            "login.file" => login.file.is_some(),
            "login.groups" => login.groups.is_some(),
            _ => true,
        };
        entries(out, LOGIN, &**login, is_shown);
    }
}

/// How the largest size is shown, which a computed setting has where nothing limits it.
const NO_LIMIT: &str = "\"1024TiB\"";

/// A setting without a value to write, such as an unnamed store, stands as a comment.
fn line(out: &mut String, setting: &Setting<Config>, loaded: &Loaded) {
    let value = setting.show(&loaded.config);
    let place = place(loaded.sources.get(setting.name));
    let silent = value == "\"\""
        || setting.is_secret()
        || setting.name == "include"
        || setting.name.starts_with("log.") && loaded.config.log.is_none();
    // A computed value is computed anew where this is read again.
    let is_computed = matches!(loaded.sources.get(setting.name), Some(ValueSource::Computed(_)));
    let comment = if silent || is_computed { "# " } else { "" };
    let value = if is_computed && value == NO_LIMIT { "no limit" } else { &value };
    let _ = writeln!(out, "{comment}{} = {value} # {place}", setting.key());
}

fn entries<T: Clone>(out: &mut String, settings: &[Setting<T>], of: &T, only: impl Fn(&str) -> bool) {
    for setting in settings.iter().filter(|setting| only(setting.name)) {
        let _ = writeln!(out, "{} = {}", setting.key(), setting.show(of));
    }
}

fn place(source: Option<&ValueSource>) -> String {
    match source {
        None => "default".to_owned(),
        Some(ValueSource::Line(file, line)) => format!("{file}:{line}"),
        Some(ValueSource::Flag(flag)) => format!("--{flag}"),
        Some(ValueSource::Computed(reason)) => format!("computed: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of many forms, so that each setting that takes a text takes one of them.
    const TEXTS: [&str; 24] = [
        "hunter2-hunter2",
        "/hunter2",
        "http://joe:hunter2@127.0.0.1:1",
        "http://hunter2.example/hunter2?a=hunter2",
        "https://hunter2.example/",
        "hunter2.example",
        "hunter2.example:80",
        "X-A: hunter2",
        "X-A",
        "HUNTER=hunter2",
        "HUNTER2",
        "icap://hunter2.example/x",
        "ldap://hunter2.example",
        "nats://hunter2.example:4222",
        "socks5://hunter2.example:1",
        "hunter2@a.example",
        "(uid={user}hunter2)",
        "(member={dn}hunter2)",
        "unix:/hunter2",
        "http+unix:/hunter2",
        "10.1.2.3",
        "10.1.2.3:80",
        "10.1.2.0/24",
        "(url|hunter2)",
    ];

    /// Sets each setting to all of these texts that it takes, and gives the number of those that were taken.
    fn nothing_is_reported<T: Clone>(settings: &[Setting<T>], like: &T) -> usize {
        let mut all = 0;
        for setting in settings {
            let mut taken = 0;
            for text in TEXTS {
                let mut to = like.clone();
                if setting.take_text(&mut to, text).is_err() {
                    continue;
                }
                let reported = setting.reported(&to);
                for part in ["hunter2", "HUNTER", "joe", "10.1.2", "X-A"] {
                    assert!(!reported.contains(part), "{}: {reported}", setting.name);
                }
                taken += 1;
            }
            let must = ["secret or none", "name", "file", "file or folder", "text", "texts", "URL", "host"];
            assert!(taken > 0 || !must.contains(&setting.form()), "{} takes none of the texts", setting.name);
            all += taken;
        }
        all
    }

    #[test]
    fn no_report_has_a_text_that_somebody_wrote() {
        let listen = Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 3128)));
        let files = CertificateFiles { chain: PathBuf::new(), key: PathBuf::new() };
        let group = any_group();
        let (rule, parts) = (RuleSettings::default(), PARTS_OF_ORIGIN.iter());
        let all = nothing_is_reported(SETTINGS, &Config::default())
            + nothing_is_reported(LISTEN, &listen)
            + nothing_is_reported(LISTEN_TLS, &files)
            + nothing_is_reported(SITE, &any_site())
            + nothing_is_reported(SITE_ROUTE, &any_route())
            + nothing_is_reported(STORE_RULE, &StoreRule::default())
            + nothing_is_reported(MIRROR, &any_mirror())
            + nothing_is_reported(LIST, &List::default())
            + nothing_is_reported(BANDWIDTH, &BandwidthSettings::default())
            + nothing_is_reported(PARENT, &Parent::default())
            + nothing_is_reported(SIBLING, &Sibling::default())
            + nothing_is_reported(PYTHON, &Python::default())
            + nothing_is_reported(ORIGIN, &group)
            + parts.map(|(_, settings)| nothing_is_reported(settings, &group)).sum::<usize>()
            + nothing_is_reported(ORIGIN_MEMBER, &OriginMember::default())
            + nothing_is_reported(ICAP, &Icap::default())
            + nothing_is_reported(RULE, &rule)
            + nothing_is_reported(RULE_WHEN, &rule.when)
            + nothing_is_reported(RULE_DO, &rule.does)
            + nothing_is_reported(HELPER, &Helper::default())
            + nothing_is_reported(LOGIN, &Login::default());
        assert!(all > 400, "{all} texts were taken");
    }

    #[test]
    fn a_report_has_numbers_and_words_of_choices() {
        let config = Config { memory_bytes: 64_000_000, ..Config::default() };
        let reported = |name: &str| {
            let setting = SETTINGS.iter().find(|setting| setting.name == name).unwrap();
            setting.reported(&config)
        };
        assert_eq!(reported("memory"), "\"64MB\"");
        assert_eq!(reported("admin_token"), "none");
        assert_eq!(reported("disk_admission"), "auto");
    }
}
