//! Logins, helpers and services of ICAP.

use super::acl::Acl;
use super::directory::{self, Directory};
use super::lines::Line;
use super::translated::Translated;
use super::{FirstMatch, Reader, flag, time, time_text};
use crate::bound::{Bound, Cond};
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::{Table, Value};
use std::collections::BTreeMap;

/// How a login counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// No line asks for one.
    #[default]
    None,
    /// Lines ask for one, and no `auth_param` says how.
    Unknown,
    /// All who use the proxy have to log in.
    OfAll {
        /// Some lines let people in without one before.
        is_stricter: bool,
    },
    /// Single rules ask for it.
    OfLines,
}

/// All that is known of people and programs.
#[derive(Default)]
pub struct People {
    schemes: Vec<Program>,
    external: BTreeMap<String, External>,
    rewriters: BTreeMap<&'static str, Program>,
    services: Vec<Service>,
    icap_is_on: bool,
    preview: Option<String>,
    sends_client: bool,
    notes_of_icap: Vec<NoteId>,
    access: BTreeMap<String, Vec<FirstMatch>>,
    /// ACLs of helpers that have to permit every request.
    gates: Vec<String>,
    gates_ask_user: bool,
    mode: Login,
    /// Whether an LDAP server knows the users, in place of Squid's program.
    by_directory: bool,
    /// Helpers of `external_acl` about groups that the login knows.
    group_helpers: Vec<String>,
}

/// A program, and what is said of it.
#[derive(Clone, Debug, Default)]
struct Program {
    /// The word of its kind, or of its scheme.
    kind: String,
    command: Vec<String>,
    settings: Table,
    realm: Option<String>,
    ttl: Option<u64>,
    notes: Vec<NoteId>,
    /// That of the line with the command.
    command_note: NoteId,
}

#[derive(Clone, Debug, Default)]
struct External {
    format: Vec<String>,
    command: Vec<String>,
    settings: Table,
    note: NoteId,
}

#[derive(Clone, Debug)]
struct Service {
    name: String,
    stage: &'static str,
    url: String,
    bypass: bool,
    connections: Option<u64>,
    note: NoteId,
}

/// Codes of a format that Larder's helpers know.
const CODES: [&str; 26] = [
    "%LOGIN",
    "%un",
    "%ul",
    "%EXT_USER",
    "%ue",
    "%SRC",
    "%>a",
    "%SRCPORT",
    "%>p",
    "%DST",
    "%>rd",
    "%PORT",
    "%>rP",
    "%URI",
    "%>ru",
    "%ru",
    "%PATH",
    "%>rp",
    "%rp",
    "%PROTO",
    "%>rs",
    "%METHOD",
    "%>rm",
    "%rm",
    "%MYADDR",
    "%MYPORT",
];
const CODES_OF_NAMES: [&str; 3] = ["%LOGIN", "%un", "%ul"];
const CODES_OF_USERS: [&str; 2] = ["%LOGIN", "%ul"];

impl People {
    /// The name of the login, where there is one.
    pub fn login_name(&self) -> Option<&'static str> {
        (!self.schemes.is_empty()).then_some("squid")
    }

    /// Whether a helper that has to permit every request is told the user.
    pub fn asks_user(&self) -> bool {
        self.gates_ask_user
    }

    /// Whether all who use the proxy have to log in, so that a rule about users asks nobody for more.
    pub fn logs_everybody_in(&self) -> bool {
        matches!(self.mode, Login::OfAll { .. })
    }

    /// Says how the login counts.
    pub fn set_mode(&mut self, mode: Login) {
        self.mode = mode;
    }

    /// Whether an ACL is about users who have logged in, or their groups.
    pub fn is_about_users(&self, acl: &Acl) -> bool {
        acl.kind == "proxy_auth" || self.is_about_groups(acl)
    }

    fn is_about_groups(&self, acl: &Acl) -> bool {
        let kind = acl.values.first().map(|value| &value.text);
        acl.kind == "external" && kind.is_some_and(|kind| self.group_helpers.contains(kind))
    }

    /// The condition of an ACL about people; `None` where it is about something else.
    pub fn cond(&self, acl: &Acl) -> Option<Translated> {
        let exact =
            |cond: Cond, why: Option<&str>| Translated { bound: Bound::exact(cond), why: why.map(str::to_owned) };
        let unknown = |why: &str| Translated { bound: Bound::unknown(), why: Some(why.to_owned()) };
        match acl.kind.as_str() {
            "proxy_auth" if matches!(self.mode, Login::None | Login::Unknown) => {
                Some(unknown("no auth_param says how people log in"))
            }
            "proxy_auth" if acl.values.iter().all(|value| value.text == "REQUIRED") => Some(exact(Cond::True, None)),
            // Both take letters of ASCII in any case for the same name.
            "proxy_auth" if self.by_directory => {
                Some(exact(Cond::atom("user", acl.values.iter().map(|value| value.text.to_ascii_lowercase())), None))
            }
            "external" if self.is_about_groups(acl) => {
                Some(exact(Cond::atom("group", acl.values.iter().skip(1).map(|value| value.text.clone())), None))
            }
            "proxy_auth" => {
                let users = Cond::atom("user", acl.values.iter().map(|value| value.text.clone()));
                match acl.values.iter().any(|value| value.folds_case) {
                    true => Some(Translated {
                        bound: Bound { must: users, may: Cond::atom("user", ["*"]) },
                        why: Some("names of users count as they are written".to_owned()),
                    }),
                    false => Some(exact(users, None)),
                }
            }
            "external"
                if self
                    .gates
                    .iter()
                    .any(|gate| acl.values.iter().map(|value| value.text.as_str()).eq(gate.split(' '))) =>
            {
                Some(exact(Cond::True, Some("access.external")))
            }
            "external" => Some(unknown(
                "a helper of external_acl permits all requests or none (access.external), and is no part of a single rule; a hook in Python can be (docs/python.md)",
            )),
            _ => None,
        }
    }
}

impl Reader<'_> {
    pub(super) fn of_people(&mut self, line: &Line, id: NoteId) -> bool {
        match line.name() {
            "auth_param" => self.auth_param(line, id),
            "external_acl_type" => self.external(line, id),
            "url_rewrite_program" | "redirect_program" => self.program("url_rewrite", line, id),
            "store_id_program" | "storeurl_rewrite_program" => self.program("store_id", line, id),
            "url_rewrite_children" | "redirect_children" => self.children("url_rewrite", line, id),
            "store_id_children" | "storeurl_rewrite_children" => self.children("store_id", line, id),
            "url_rewrite_concurrency" => self.children("url_rewrite", line, id),
            "url_rewrite_bypass" | "redirector_bypass" | "store_id_bypass" => {
                let kind = if line.name().starts_with("store") { "store_id" } else { "url_rewrite" };
                let fails = if flag(line.word(1)) == Some(true) { "allow" } else { "deny" };
                let program = self.people.rewriters.entry(kind).or_default();
                program.settings.set("on_failure", fails);
                program.notes.push(id);
                self.draft.translated(id);
            }
            "url_rewrite_access" | "store_id_access" | "redirector_access" => {
                let is_all = line.word(1) == "allow" && line.rest(2).eq(["all"]);
                let text = "the helper is asked about every request of the forward proxy";
                self.draft.fate(id, if is_all { Fate::Translated } else { Fate::Different }, text);
            }
            "icap_enable" => {
                self.people.icap_is_on = flag(line.word(1)) == Some(true);
                self.people.notes_of_icap.push(id);
                self.draft.fate(id, Fate::Translated, "a [[icap]] is enough");
            }
            "icap_service" => self.icap_service(line, id),
            "adaptation_access" | "icap_access" => {
                let allows = line.word(2) == "allow";
                let acls = line.rest(3).map(str::to_owned).collect();
                let of = self.people.access.entry(line.word(1).to_owned()).or_default();
                of.push(FirstMatch { allows, acls, note: id });
                self.draft.fate(id, Fate::Translated, "");
            }
            "icap_preview_enable" if flag(line.word(1)) == Some(false) => {
                self.people.preview = Some("none".to_owned());
                self.draft.translated(id);
            }
            "icap_preview_enable" => self.draft.fate(id, Fate::Translated, "preview = \"auto\" is the default"),
            "icap_preview_size" => {
                let bytes = line.word(1).parse::<u64>().ok().filter(|bytes| *bytes <= 1 << 20);
                self.people.preview = self.people.preview.take().or(bytes.map(|bytes| bytes.to_string()));
                self.draft.translated(id);
            }
            "adaptation_send_client_ip" | "icap_send_client_ip" => {
                self.people.sends_client = flag(line.word(1)) == Some(true);
                self.draft.translated(id);
            }
            _ => return false,
        }
        true
    }

    fn auth_param(&mut self, line: &Line, id: NoteId) {
        self.draft.guards(id);
        let scheme = line.word(1).to_ascii_lowercase();
        if !["basic", "digest", "negotiate", "ntlm"].contains(&scheme.as_str()) {
            return self.draft.fate(id, Fate::Missing, "Larder does not know this scheme");
        }
        let at = match self.people.schemes.iter().position(|program| program.kind == scheme) {
            Some(at) => at,
            None => {
                self.people.schemes.push(Program { kind: scheme, ..Program::default() });
                self.people.schemes.len() - 1
            }
        };
        let Some(program) = self.people.schemes.get_mut(at) else { return };
        program.notes.push(id);
        let words: Vec<&str> = line.rest(3).collect();
        let (mut fate, mut text) = (Fate::Translated, "");
        match line.word(2) {
            "program" => {
                program.command = words.iter().map(|word| (*word).to_owned()).collect();
                program.command_note = id;
            }
            "realm" => program.realm = Some(words.join(" ")),
            "children" => children(&mut program.settings, &words),
            "concurrency" => children(&mut program.settings, &[&format!("concurrency={}", line.word(3))]),
            "credentialsttl" => program.ttl = time(&words, 1_000),
            "casesensitive" => (fate, text) = (Fate::Different, "names count as they are written"),
            "keep_alive" | "nonce_strictness" | "check_nonce_count" | "post_workaround" => {
                (fate, text) = (Fate::NotNeeded, "Larder does what clients need by itself");
            }
            "nonce_garbage_interval" | "nonce_max_count" => {
                (fate, text) = (Fate::NotNeeded, "nonces are bounded by nonce_ttl")
            }
            "nonce_max_duration" => {
                program.settings.set("nonce_ttl", time_text(time(&words, 1_000).unwrap_or(300_000)))
            }
            _ => (fate, text) = (Fate::Missing, "logins have no such setting"),
        }
        if fate != Fate::Translated {
            self.draft.not_a_guard(&[id]);
        }
        self.draft.fate(id, fate, text);
    }

    fn external(&mut self, line: &Line, id: NoteId) {
        let mut external = External { note: id, ..External::default() };
        let mut words = line.rest(2).peekable();
        while let Some(word) = words.next_if(|word| !word.starts_with(['%', '/']) && is_option(word)) {
            match word.split_once('=') {
                Some(("ttl", value)) => external.settings.set("ttl", format!("{}s", number(value, 3_600))),
                Some(("negative_ttl", value)) => {
                    external.settings.set("negative_ttl", format!("{}s", number(value, 3_600)))
                }
                _ => children(&mut external.settings, &[word]),
            }
        }
        while let Some(word) = words.next_if(|word| word.starts_with('%') || word.contains(" %")) {
            external.format.extend(word.split(' ').map(str::to_owned));
        }
        external.command = words.map(str::to_owned).collect();
        self.draft.guards(id);
        self.people.external.insert(line.word(1).to_owned(), external);
    }

    fn program(&mut self, kind: &'static str, line: &Line, id: NoteId) {
        let program = self.people.rewriters.entry(kind).or_default();
        program.command = line.rest(1).map(str::to_owned).collect();
        program.notes.push(id);
        self.draft.guards(id);
        if program.command.first().is_some_and(|command| command == "none") {
            program.command.clear();
        }
        self.draft.translated(id);
    }

    fn children(&mut self, kind: &'static str, line: &Line, id: NoteId) {
        let program = self.people.rewriters.entry(kind).or_default();
        let words: Vec<&str> = line.rest(1).collect();
        match line.name().ends_with("concurrency") {
            true => children(&mut program.settings, &[&format!("concurrency={}", line.word(1))]),
            false => children(&mut program.settings, &words),
        }
        program.notes.push(id);
        self.draft.translated(id);
    }

    fn icap_service(&mut self, line: &Line, id: NoteId) {
        self.draft.guards(id);
        let Some(url) = line.rest(2).find(|word| word.contains("://")).map(str::to_owned) else {
            return self.draft.fate(id, Fate::Missing, "it has no URL");
        };
        let stage = match line.word(2) {
            "reqmod_precache" => "reqmod",
            "respmod_precache" => "respmod-store",
            _ => return self.draft.fate(id, Fate::Missing, "Larder does not ask services at this point"),
        };
        let mut bypass = line.word(3) == "1";
        let mut connections = None;
        for word in line.rest(3) {
            match word.split_once('=') {
                Some(("bypass", value)) => bypass = value == "1" || flag(value) == Some(true),
                Some(("max-conn", value)) => connections = value.parse().ok().filter(|count| *count > 0),
                _ => {}
            }
        }
        if !url.starts_with("icap://") {
            return self.draft.fate(id, Fate::Missing, "services are asked without TLS, as icap://, and eCAP is not offered: what it looked at is not looked at");
        }
        self.people.services.push(Service { name: line.word(1).to_owned(), stage, url, bypass, connections, note: id });
        self.draft.translated(id);
    }

    pub(super) fn finish_people(&mut self) {
        self.finish_login();
        self.finish_gates();
        self.finish_rewriters();
        self.finish_services();
    }

    fn finish_login(&mut self) {
        self.people.schemes.retain(|program| !program.command.is_empty());
        let is_groups = |external: &External| directory::is_groups(&external.command);
        let groups: Vec<&String> =
            self.people.external.iter().filter(|(_, it)| is_groups(it)).map(|(name, _)| name).collect();
        let is_of_groups =
            |acl: &Acl| acl.kind == "external" && acl.values.first().is_some_and(|kind| groups.contains(&&kind.text));
        let is_used = self.acls.values().any(|acl| acl.kind.starts_with("proxy_auth") || is_of_groups(acl));
        let schemes = self.people.schemes.clone();
        for program in schemes.iter().skip(1) {
            for id in &program.notes {
                self.draft.not_a_guard(&[*id]);
                self.draft.fate(*id, Fate::Different, "one scheme is offered: the first one");
            }
        }
        self.people.schemes.truncate(1);
        let Some(program) = schemes.first() else { return };
        if !is_used {
            program.notes.iter().for_each(|id| self.draft.fate(*id, Fate::NotNeeded, "no acl asks for a login"));
            self.people.schemes.clear();
            return;
        }
        let mut settings = program.settings.clone();
        let nonce_ttl = settings.find("nonce_ttl").cloned();
        settings.0.retain(|(key, _)| key != "nonce_ttl");
        if ["negotiate", "ntlm"].contains(&program.kind.as_str()) {
            settings.0.retain(|(key, _)| key != "concurrency");
        }
        let mut login = Table::default().with("name", "squid").with("scheme", program.kind.as_str());
        let by_directory = self.login_by_directory(program);
        if by_directory.is_none() {
            login.set("helper", "squid-login");
        }
        if let Some(realm) = &program.realm {
            login.set("realm", realm.as_str());
        }
        if let Some(ttl) = program.ttl {
            login.set("ttl", time_text(ttl.min(86_400_000)));
        }
        if let Some(ttl) = nonce_ttl {
            login.set("nonce_ttl", ttl);
        }
        if let Some(by_directory) = by_directory {
            login.0.extend(by_directory.0);
            self.draft.push("login", login, &program.notes);
            return;
        }
        let mut helper = Table::default()
            .with("name", "squid-login")
            .with("kind", program.kind.as_str())
            .with("command", program.command.clone());
        helper.0.extend(settings.0);
        self.draft.push("login", login, &program.notes);
        self.draft.push("helper", helper, &program.notes);
    }

    /// The settings of LDAP for a login whose program asks LDAP servers; `None` where the program stays.
    fn login_by_directory(&mut self, program: &Program) -> Option<Table> {
        if program.kind != "basic" || !directory::is_login(&program.command) {
            return None;
        }
        let read = Directory::read(&program.command).and_then(|read| read.login().map(|login| (read, login)));
        let (of_login, (mut settings, caution)) = match read {
            Ok(read) => read,
            Err(why) => {
                let text = format!("the program stays, and is not translated to settings of LDAP: {why}");
                self.draft.fate(program.command_note, Fate::Translated, &text);
                return None;
            }
        };
        self.people.by_directory = true;
        self.draft.fate(program.command_note, Fate::Different, caution);
        let externals = self.people.external.clone();
        for (name, external) in externals.iter().filter(|(_, external)| directory::is_groups(&external.command)) {
            let asks_user_alone =
                matches!(external.format.as_slice(), [only] if CODES_OF_USERS.contains(&only.as_str()));
            let found = Directory::read(&external.command).and_then(|groups| groups.groups(&of_login));
            let is_new = |found: &Vec<(&str, String)>| {
                !found
                    .iter()
                    .any(|(key, value)| settings.find(key).is_some_and(|old| *old != Value::from(value.as_str())))
                    && (self.people.group_helpers.is_empty()
                        || found.iter().all(|(key, _)| settings.find(key).is_some()))
            };
            let text = match found {
                Ok(found) if asks_user_alone && is_new(&found) => {
                    found.into_iter().for_each(|(key, value)| settings.set(key, value));
                    self.people.group_helpers.push(name.clone());
                    let text = "groups are found at the login and remembered as long as it is; their names are compared letter by letter, \
                                as the directory has them";
                    self.draft.fate(external.note, Fate::Different, text);
                    continue;
                }
                Ok(_) => "it is told more than the user, or finds groups in another way than the first one".to_owned(),
                Err(why) => why,
            };
            self.draft.fate(external.note, Fate::Missing, &format!("it is not translated to settings of LDAP: {text}"));
        }
        Some(settings)
    }

    /// Helpers that have to permit every request: those without which no line allows anything.
    fn finish_gates(&mut self) {
        let lines = self.access.http_lines_now();
        let named: Vec<(String, Acl)> = self
            .acls
            .iter()
            .filter(|(_, acl)| acl.kind == "external" && !self.people.is_about_groups(acl))
            .map(|(name, acl)| (name.clone(), acl.clone()))
            .collect();
        let mut used: Vec<String> = Vec::new();
        for (name, acl) in named {
            let in_all = lines.iter().any(|line| line.allows)
                && lines.iter().filter(|line| line.allows).all(|line| line.acls.contains(&name));
            let is_denied = lines.iter().any(|line| !line.allows && line.acls == [format!("!{name}")]);
            let kind = acl.values.first().map_or("", |value| value.text.as_str()).to_owned();
            let Some(external) = self.people.external.get(&kind).cloned() else { continue };
            used.push(kind.clone());
            let is_known = |code: &String| {
                CODES.contains(&code.as_str())
                    || ["%la", "%lp", "%>ha", "%ACL", "%DATA"].contains(&code.as_str())
                    || ((code.starts_with("%{") || code.starts_with("%>{")) && !code.contains(':'))
            };
            if !(in_all || is_denied) {
                self.draft.fate(
                    external.note,
                    Fate::Missing,
                    "it is a part of single rules, and Larder asks a helper about every request or none",
                );
                continue;
            }
            let asks_user = external.format.iter().any(|code| CODES_OF_NAMES.contains(&code.as_str()));
            if !external.format.iter().all(is_known)
                || external.command.is_empty()
                || (asks_user && self.people.schemes.is_empty())
            {
                self.draft.fate(
                    external.note,
                    Fate::Missing,
                    "its format has a code that Larder's helpers do not know, or asks for users where nobody logs in",
                );
                continue;
            }
            let helper_name = self.draft.free_name("helper", &name);
            let mut helper = Table::default()
                .with("name", helper_name.as_str())
                .with("kind", "external_acl")
                .with("command", external.command.clone())
                .with("format", external.format.join(" "));
            helper.0.extend(external.settings.0.clone());
            let arguments: Vec<String> = acl.values.iter().skip(1).map(|value| value.text.clone()).collect();
            if !arguments.is_empty() {
                helper.set("arguments", arguments);
            }
            self.draft.translated(external.note);
            self.draft.push("helper", helper, &[external.note]);
            self.draft.add_texts("access.external", [helper_name], &acl.notes);
            self.people.gates_ask_user |= asks_user;
            let values: Vec<&str> = acl.values.iter().map(|value| value.text.as_str()).collect();
            self.people.gates.push(values.join(" "));
        }
        let unused: Vec<NoteId> = self
            .people
            .external
            .iter()
            .filter(|(name, _)| !used.contains(name) && !self.people.group_helpers.contains(name))
            .map(|(_, external)| external.note)
            .collect();
        unused.into_iter().for_each(|id| self.draft.fate(id, Fate::NotNeeded, "no acl names it"));
    }

    fn finish_rewriters(&mut self) {
        for (kind, program) in self.people.rewriters.clone() {
            if program.command.is_empty() {
                program.notes.iter().for_each(|id| self.draft.fate(*id, Fate::NotNeeded, "there is no such program"));
                continue;
            }
            let name = self.draft.free_name("helper", kind);
            let mut helper = Table::default()
                .with("name", name.as_str())
                .with("kind", kind)
                .with("command", program.command.clone());
            helper.0.extend(program.settings.0.clone());
            self.draft.push("helper", helper, &program.notes);
            let setting = if kind == "store_id" { "forward.store_id" } else { "forward.url_rewrite" };
            self.draft.set(setting, name, &[]);
        }
    }

    fn finish_services(&mut self) {
        for service in self.people.services.clone() {
            let access = self.people.access.get(&service.name).cloned().unwrap_or_default();
            if !self.people.icap_is_on || access.is_empty() {
                self.draft.fate(
                    service.note,
                    Fate::NotNeeded,
                    "nothing switches it on (icap_enable, adaptation_access)",
                );
                continue;
            }
            let name = self.draft.free_name("icap", &service.name);
            let mut table = Table::default()
                .with("name", name)
                .with("urls", vec![service.url.clone()])
                .with("stage", service.stage)
                .with("on_failure", if service.bypass { "pass" } else { "deny" });
            if let Some(count) = service.connections {
                table.set("connections", count);
            }
            if let Some(preview) = &self.people.preview {
                table.set("preview", preview.as_str());
            }
            if self.people.sends_client && service.stage != "respmod-store" {
                table.set("send_client", true);
            }
            for line in &access {
                let is_all = line.allows && line.acls == ["all"];
                if !is_all {
                    self.draft.fate(
                        line.note,
                        Fate::Different,
                        "the service is asked about all; hosts, methods and types of the [[icap]] narrow that",
                    );
                }
            }
            let notes: Vec<NoteId> = std::mem::take(&mut self.people.notes_of_icap)
                .into_iter()
                .chain([service.note])
                .chain(access.iter().map(|line| line.note))
                .collect();
            self.draft.push("icap", table, &notes);
        }
    }
}

/// Whether a word is an option of `external_acl_type`.
fn is_option(word: &str) -> bool {
    ["ipv4", "ipv6"].contains(&word) || (word.contains('=') && !word.contains('/'))
}

fn number(text: &str, usual: u64) -> u64 {
    text.parse().unwrap_or(usual).min(30 * 86_400)
}

/// `20 startup=5 idle=2 concurrency=0 queue-size=40`.
fn children(settings: &mut Table, words: &[&str]) {
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or(("children", word));
        let Ok(value) = value.parse::<u64>() else { continue };
        match key {
            "children" | "children-max" => settings.set("children", value.clamp(1, 512)),
            "startup" | "children-startup" => settings.set("startup", value.min(512)),
            "idle" | "children-idle" => settings.set("idle", value.min(512)),
            "concurrency" => settings.set("concurrency", value.min(4_096)),
            "queue-size" => settings.set("queue", value.clamp(1, 100_000)),
            _ => {}
        }
    }
    // No more are started than there may be.
    let most = match settings.find("children") {
        Some(Value::Number(children)) => *children,
        _ => 5,
    };
    for key in ["startup", "idle"] {
        if let Some(Value::Number(count)) = settings.find(key)
            && *count > most
        {
            settings.set(key, most);
        }
    }
}
