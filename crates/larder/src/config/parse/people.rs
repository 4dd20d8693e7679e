//! `[[helper]]` and `[[login]]`, and the settings that name them.

use super::Parser;
use crate::config::helper::HELPER;
use crate::config::login::LOGIN;
use crate::config::{
    CertificateDemand, CertificateUser, ClientCertificates, EXTERNAL_MAX, Helper, HostPattern, Ldap, Listen, Login,
    LoginScheme, Site, SiteForm, SourceLine,
};
use larder_people::format::Format;
use larder_people::kind::Kind;
use larder_rules::rule::{Rule, Verdict};
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

impl Parser {
    pub(super) fn helpers(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("helper", value);
        for (span, table) in self.tables("helper", value) {
            let mut helper = Helper::default();
            let missing = self.entry("helper", HELPER, &span, table, &mut helper, &[]);
            helper.place = self.place(&span);
            if self.loaded.config.helpers.iter().any(|other| other.name == helper.name) && !missing {
                self.problem(span.clone(), format!("there is a [[helper]] {} already", helper.name), None);
            }
            if helper.command.is_empty() && table.contains_key("command") && !missing {
                let hint = "write command = [\"/usr/lib/squid/basic_ncsa_auth\", \"/etc/larder/users\"]".to_owned();
                self.problem(span.clone(), "`command` names no program".to_owned(), Some(hint));
            }
            if let Some(text) = table.get("command").and_then(|command| command.get_ref().as_str())
                && text.contains(char::is_whitespace)
                && !std::path::Path::new(text).is_file()
            {
                let words: Vec<String> = text.split_whitespace().map(|word| format!("{word:?}")).collect();
                let hint = format!("write command = [{}]: no shell divides it into words", words.join(", "));
                let message = "`command` is one text, which is a program whose name has spaces".to_owned();
                self.problem(span.clone(), message, Some(hint));
            }
            // The table said only that it is none: here the reason is known.
            if let Some(written) = table.get("format").and_then(|format| format.get_ref().as_str())
                && let Err(fault) = Format::parse(written)
            {
                self.problem(span.clone(), format!("format: {fault}"), None);
            }
            if table.get("kind").and_then(|kind| kind.get_ref().as_str()) != Some(helper.kind.as_str()) {
                self.faulty.push(("helper.kind".to_owned(), helper.name.clone(), SourceLine::default()));
            }
            if missing {
                self.loaded.config.helpers.push(Arc::new(helper));
                continue;
            }
            let is_acl = helper.kind == Kind::ExternalAcl;
            if is_acl && !table.contains_key("format") {
                let hint = "write format = \"%SRC %LOGIN\", as behind `external_acl_type` in Squid".to_owned();
                self.problem(span.clone(), "a helper of external_acl needs `format`".to_owned(), Some(hint));
            }
            if !is_acl && (helper.format.is_some() || !helper.arguments.is_empty()) {
                let message = "`format` and `arguments` are for helpers of external_acl".to_owned();
                self.problem(span.clone(), message, None);
            }
            if helper.kind.is_stateful() && helper.concurrency > 0 {
                let message = "a helper of negotiate or ntlm has no channels".to_owned();
                self.problem(span, message, Some("leave out `concurrency`".to_owned()));
            }
            self.loaded.config.helpers.push(Arc::new(helper));
        }
    }

    pub(super) fn logins(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("login", value);
        for (span, table) in self.tables("login", value) {
            let mut login = Login::default();
            let missing = self.entry("login", LOGIN, &span, table, &mut login, &[]);
            login.place = self.place(&span);
            if self.loaded.config.logins.iter().any(|other| other.name == login.name) && !missing {
                self.problem(span.clone(), format!("there is a [[login]] {} already", login.name), None);
            }
            if missing {
                self.loaded.config.logins.push(Arc::new(login));
                continue;
            }
            if login.scheme.is_by_page() {
                self.check_page(&span, &login);
                self.loaded.config.logins.push(Arc::new(login));
                continue;
            }
            self.check_no_page(&span, &login);
            let needs_helper = matches!(login.scheme, LoginScheme::Negotiate | LoginScheme::Ntlm);
            if needs_helper && login.helper.is_empty() {
                let message = format!("a login of {} needs `helper`", login.scheme.as_str());
                self.problem(span.clone(), message, Some("name a [[helper]] of that kind".to_owned()));
            }
            let by_ldap = login.ldap != Ldap::default();
            if by_ldap && login.scheme != LoginScheme::Basic {
                let message = format!("a login of {} is not by LDAP: a server checks passwords", login.scheme.as_str());
                self.problem(span.clone(), message, Some("write scheme = \"basic\"".to_owned()));
            } else if let Some((message, hint)) = login.ldap.trouble().filter(|_| by_ldap) {
                self.problem(span.clone(), message, Some(hint.to_owned()));
            }
            let sources = [login.file.is_some(), !login.helper.is_empty(), login.jwks.is_some(), by_ldap];
            if login.jwks.is_some() && login.scheme != LoginScheme::Bearer {
                let message = "`jwks` is for a login of bearer".to_owned();
                self.problem(span.clone(), message, Some("leave it out".to_owned()));
            } else if !needs_helper && sources.iter().filter(|given| **given).count() != 1 {
                let hint = match login.scheme {
                    LoginScheme::Digest => "write file = \"/etc/larder/digest\" (`htdigest FILE REALM USER` makes it)",
                    LoginScheme::Bearer => {
                        "write jwks = \"https://ISSUER/jwks.json\", or file = \"/etc/larder/jwks.json\""
                    }
                    _ => "write file = \"/etc/larder/users\" (`htpasswd -B FILE USER` makes it)",
                };
                let message = match login.scheme {
                    LoginScheme::Bearer => "a login of bearer needs either `file` or `jwks`",
                    LoginScheme::Basic => "a login needs either `file`, `helper` or `ldap`",
                    _ => "a login needs either `file` or `helper`",
                };
                let message = message.to_owned();
                self.problem(span.clone(), message, Some(hint.to_owned()));
            }
            if login.scheme == LoginScheme::Bearer {
                if login.issuer.is_empty() || login.audience.is_empty() {
                    let message = "a login of bearer needs `issuer` and `audience`".to_owned();
                    self.problem(span.clone(), message, Some("tokens of others would count too".to_owned()));
                }
                if !login.helper.is_empty() {
                    let message = "tokens are checked by the keys in `file` or at `jwks`, not by a helper".to_owned();
                    self.problem(span, message, None);
                }
            }
            self.loaded.config.logins.push(Arc::new(login));
        }
    }

    /// Reports settings of a page in a login that has none.
    fn check_no_page(&mut self, span: &Range<usize>, login: &Login) {
        let unknown = Login::default();
        let is_of_page = (&login.users, &login.url) != (&unknown.users, &unknown.url)
            || (login.session, login.idle) != (unknown.session, unknown.idle);
        if is_of_page {
            let message = "`users`, `url`, `session` and `idle` are for a login of page or form".to_owned();
            let hint = "leave them out, or write scheme = \"page\" or \"form\"".to_owned();
            self.problem(span.clone(), message, Some(hint));
        }
    }

    fn check_page(&mut self, span: &Range<usize>, login: &Login) {
        if login.scheme == LoginScheme::Form {
            self.check_form(span, login);
        } else if login.users.is_empty() || login.url.is_none() {
            let hint = "write users = \"NAME\" (a [[login]] of basic) and url = \"https://proxy.example:8443\"";
            self.problem(span.clone(), "a login of page needs `users` and `url`".to_owned(), Some(hint.to_owned()));
        }
        if login.file.is_some()
            || !login.helper.is_empty()
            || login.jwks.is_some()
            || login.groups.is_some()
            || login.ldap != Ldap::default()
        {
            let message = "the users of a page or form are those of the login that `users` names".to_owned();
            let hint = "write `file`, `helper` and `groups` there".to_owned();
            self.problem(span.clone(), message, Some(hint));
        }
    }

    fn check_form(&mut self, span: &Range<usize>, login: &Login) {
        if login.users.is_empty() {
            let hint = "write users = \"NAME\" (a [[login]] of basic)".to_owned();
            self.problem(span.clone(), "a login of form needs `users`".to_owned(), Some(hint));
        }
        if login.url.is_some() {
            let hint = "leave it out, or write scheme = \"page\", which is for the forward proxy".to_owned();
            let message = "`url` is for a login of page: a form is on the site that asks for it".to_owned();
            self.problem(span.clone(), message, Some(hint));
        }
        if login.forward {
            let hint = "tell origins the user by a rule: do = { set = \"X-User: {user}\" }".to_owned();
            let message = "`forward` is for credentials in a field: origins never get the cookie of a form".to_owned();
            self.problem(span.clone(), message, Some(hint));
        }
    }

    /// Finds the forms that sites and rules ask for, and reports those that no site could have.
    fn finish_forms(&mut self) {
        let config = &self.loaded.config;
        let asks = |rule: &Rule, login: &Login| matches!(&rule.does.verdict, Some(Verdict::Login(name)) if **name == *login.name);
        let form_of = |login: &Arc<Login>| SiteForm {
            login: Arc::clone(login),
            is_by_rule: config.rule_table.table.rules().iter().any(|rule| asks(rule, login)),
        };
        let forms = config.logins.iter().filter(|login| login.scheme == LoginScheme::Form).map(form_of);
        let is_asked =
            |form: &SiteForm| form.is_by_rule || config.sites.iter().any(|site| site.login == form.login.name);
        let forms: Vec<SiteForm> = forms.filter(is_asked).collect();
        let has_sites = !config.sites.is_empty() || config.listens.iter().any(|listen| listen.origin.is_some());
        let misplaced: Vec<String> = forms
            .iter()
            .filter(|form| form.is_by_rule && !has_sites)
            .map(|form| format!("{}: a login of form is for sites, and there is none", form.login.place))
            .collect();
        let access =
            config.logins.iter().find(|login| login.scheme == LoginScheme::Form && login.name == config.access.login);
        if access.is_some() {
            let message = "access.login: a login of form is for sites: no cookie of the proxy reaches other hosts";
            self.conflict("access.login", message, Some("name a login of page (by address), or of another scheme"));
        }
        for message in misplaced {
            self.conflict("login", &message, Some("write a [[site]], or scheme = \"page\" for the forward proxy"));
        }
        self.loaded.config.site_forms = forms;
    }

    /// Reports a page whose users nobody knows, and finds the pages.
    fn finish_pages(&mut self) {
        let by_page: Vec<Arc<Login>> =
            self.loaded.config.logins.iter().filter(|login| login.scheme.is_by_page()).cloned().collect();
        let is_page = |login: &&Arc<Login>| login.scheme == LoginScheme::Page;
        let pages: Vec<Arc<Login>> = by_page.iter().filter(is_page).cloned().collect();
        for page in &by_page {
            self.check_users_of(page);
        }
        for page in &pages {
            if pages.iter().take_while(|other| other.name != page.name).any(|other| other.url == page.url) {
                let message = format!("{}: another login has its page at this `url`", page.place);
                self.conflict("login", &message, Some("give each page a host or a port of its own"));
            }
            let host = page.url.as_ref().map(|url| &url.host);
            let is_named =
                |pattern: &HostPattern| *pattern != HostPattern::Any && host.is_some_and(|host| pattern.matches(host));
            if self.loaded.config.sites.iter().any(|site| site.hosts.iter().any(is_named)) {
                let message = format!(
                    "{}: the page is at the host of a [[site]], whose scripts could read what is typed",
                    page.place
                );
                self.conflict("login", &message, Some("give `url` a host that no site has"));
            }
        }
        self.loaded.config.login_pages = pages;
    }

    /// Reports a login by a page whose users nobody knows.
    fn check_users_of(&mut self, page: &Login) {
        if page.users.is_empty() || self.is_faulty("login", &page.users) {
            return;
        }
        let found = self.loaded.config.logins.iter().find(|login| login.name == page.users);
        let label = format!("{}: users", page.place);
        match found.map(|found| found.scheme) {
            None => {
                let known: Vec<String> = self.loaded.config.logins.iter().map(|known| known.name.clone()).collect();
                self.no_such("login", &label, "login", &page.users, &known);
            }
            Some(LoginScheme::Basic) => {}
            Some(other) => {
                let message = format!("{label}: the login {} is one of {}, not of basic", page.users, other.as_str());
                self.conflict("login", &message, None);
            }
        }
    }

    /// Reports settings about certificates of clients that have no effect, or would let nobody in.
    pub(super) fn check_client_certificates(&mut self, span: &Range<usize>, listen: &Listen) {
        let clients = &listen.clients;
        let message = match (clients.demand, &clients.authorities) {
            (CertificateDemand::None, _) if *clients != ClientCertificates::default() => {
                "`client_ca`, `client_crl` and `certificate_user` need `client_certificates`"
            }
            (CertificateDemand::Request | CertificateDemand::Require, None) => {
                "`client_certificates` needs `client_ca`, the authorities whose certificates count"
            }
            (CertificateDemand::Request | CertificateDemand::Require, _) if !listen.is_tls() => {
                "`client_certificates` needs TLS: this listener has no [[listen.tls]]"
            }
            _ => return,
        };
        let hint = "write client_certificates = \"require\", client_ca = \"/etc/larder/clients.pem\"".to_owned();
        self.problem(span.clone(), message.to_owned(), Some(hint));
    }

    /// Reports names of logins and helpers that there are none of, and helpers of another kind.
    pub(super) fn check_people(&mut self) {
        for login in self.loaded.config.logins.clone() {
            let kind = match login.scheme {
                LoginScheme::Basic => Kind::Basic,
                LoginScheme::Digest => Kind::Digest,
                LoginScheme::Negotiate => Kind::Negotiate,
                LoginScheme::Ntlm => Kind::Ntlm,
                LoginScheme::Bearer | LoginScheme::Page | LoginScheme::Form => continue,
            };
            if !login.helper.is_empty() {
                self.check_helper("login", &format!("{}: helper", login.place), &login.helper, kind);
            }
        }
        self.finish_pages();
        self.finish_forms();
        let (access, forward) = (self.loaded.config.access.clone(), self.loaded.config.forward_helpers.clone());
        self.check_gate(
            ("access.login", "access.login"),
            &access.login,
            ("access.external", "access.external"),
            &access.external,
        );
        for (setting, name, kind) in [
            ("forward.url_rewrite", &forward.url_rewrite, Kind::UrlRewrite),
            ("forward.store_id", &forward.store_id, Kind::StoreId),
        ] {
            if !name.is_empty() {
                self.check_helper(setting, setting, name, kind);
            }
        }
        let sites: Vec<Site> = self.loaded.config.sites.iter().cloned().collect();
        for site in sites {
            if self.loaded.config.login_pages.iter().any(|page| page.name == site.login) {
                let message = format!("{}: login: a login of page is for the forward proxy", site.place);
                self.conflict("site", &message, Some("name one of form, or of another scheme"));
            }
            let named = |setting: &str| format!("{}: {setting}", site.place);
            self.check_gate(("site", &named("login")), &site.login, ("site", &named("external")), &site.external);
            for (setting, name, kind) in
                [("url_rewrite", &site.url_rewrite, Kind::UrlRewrite), ("store_id", &site.store_id, Kind::StoreId)]
            {
                if !name.is_empty() {
                    self.check_helper("site", &named(setting), name, kind);
                }
            }
        }
    }

    fn check_gate(
        &mut self,
        (login_at, login_label): (&str, &str),
        login: &str,
        (external_at, external_label): (&str, &str),
        external: &[String],
    ) {
        if !login.is_empty()
            && !self.is_faulty("login", login)
            && !self.loaded.config.logins.iter().any(|known| known.name == *login)
        {
            let known: Vec<String> = self.loaded.config.logins.iter().map(|known| known.name.clone()).collect();
            self.no_such(login_at, login_label, "login", login, &known);
        }
        if external.len() > EXTERNAL_MAX {
            let message = format!("{external_label}: a request is asked about by at most {EXTERNAL_MAX} helpers");
            self.conflict(external_at, &message, Some("one program can look at several things at once"));
        }
        for name in external {
            self.check_helper(external_at, external_label, name, Kind::ExternalAcl);
            let helper = self.loaded.config.helpers.iter().find(|helper| helper.name == *name);
            let asks_user = helper.and_then(|helper| helper.format.as_ref()).is_some_and(Format::asks_user);
            if asks_user && login.is_empty() && !self.certificates_name_users() {
                let message = format!(
                    "{external_label}: the helper {name} is asked about users (%LOGIN), and nobody logs in here"
                );
                self.conflict(external_at, &message, Some("name a [[login]] with `login`"));
            }
        }
    }

    /// Whether a listener takes a name in certificates for the user.
    pub(super) fn certificates_name_users(&self) -> bool {
        self.loaded.config.listens.iter().any(|listen| listen.clients.user != CertificateUser::None)
    }

    fn check_helper(&mut self, at: &str, label: &str, name: &str, kind: Kind) {
        let found = self.loaded.config.helpers.iter().find(|helper| helper.name == *name).map(|helper| helper.kind);
        match found {
            _ if self.is_faulty("helper.kind", name) => {}
            None => {
                let known: Vec<String> = self.loaded.config.helpers.iter().map(|known| known.name.clone()).collect();
                self.no_such(at, label, "helper", name, &known);
            }
            Some(found) if found != kind => {
                let message =
                    format!("{label}: the helper {name} is one of {}, not of {}", found.as_str(), kind.as_str());
                self.conflict(at, &message, None);
            }
            Some(_) => {}
        }
    }

    fn no_such(&mut self, at: &str, label: &str, table: &str, name: &str, known: &[String]) {
        let is_program = name.contains(['/', ' ']);
        let hint = match known.is_empty() {
            // A path, or a command with its words, as Squid has it.
            _ if is_program && table == "helper" => {
                "this is the name of a table: write [[helper]] with name = \"check\", a kind and command = [\"PROGRAM\", \"WORD\"], and its name here".to_owned()
            }
            true => format!("add a [[{table}]] with name = {name:?}"),
            false => format!("there are: {}", known.join(", ")),
        };
        self.conflict(at, &format!("{label}: there is no [[{table}]] {name}"), Some(&hint));
    }
}
