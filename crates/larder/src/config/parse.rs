//! The parser from a TOML file and flags to a [`Config`], which collects all errors.

mod acme;

mod origin;

mod icap;

mod forward;

mod rule;

mod people;

mod unix_socket;

mod unknown;

use super::foreign;
use super::places;
use super::report::{Problem, Report, Source};
use super::setting::{Refusal, Setting, kind};
use super::sites;
use super::table::{LISTEN, LISTEN_TLS, MIRROR, SETTINGS, SITE, SITE_ROUTE, STORE_RULE};
use super::url::SiteOrigin;
use super::{
    CertificateFiles, Config, HostHeader, Listen, Mirror, MirrorSetting, Mirroring, Site, SiteCertificate, SiteRoute,
    Sites, SourceLine, StoreRule, Transparent, mirrors, url,
};
use crate::lines;
use larder_wire::{Host, Scheme, Url};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

mod bandwidth;
mod cluster;
mod http3;
mod list;
mod mount;
mod parent;
mod pass_through;

/// A longer file is not read: it is no configuration.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A configuration, and the source of each of its values.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Settings of the table that do not have their default, by name, and `listen` and `site` as wholes.
    pub sources: BTreeMap<&'static str, ValueSource>,
    /// The file that was read first, if any.
    pub file: Option<PathBuf>,
    /// All files that were read: that one, those that it includes, and those of secrets (`${FILE:PATH}`).
    pub files: Vec<PathBuf>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// From this line of this file.
    Line(Arc<str>, usize),
    /// From this flag.
    Flag(&'static str),
    /// It is not configured: it follows from this machine or another setting, for this reason.
    Computed(Arc<str>),
}

/// A flag of the command line that is a setting.
#[derive(Clone, Debug)]
pub enum Flag {
    /// A setting of the table, by name.
    Setting(&'static str, String),
    /// `--listen`: the flags of this kind replace the listeners of the file.
    Listen(String),
    /// `--origin`: all that is asked on all listeners comes from there.
    Origin(String),
    /// A container registry that listeners mirror.
    Registry(String),
}

impl Loaded {
    /// Reads `file`, if any, with what it includes, and puts `flags` over it. `Err` has everything that is wrong.
    pub fn read(file: Option<&Path>, flags: &[Flag]) -> Result<Loaded, Report> {
        let (loaded, report) = Loaded::examine(file, flags);
        report.map_or(Ok(loaded), Err)
    }

    /// Like [`Loaded::read`], but gives the values that could be read also where something is wrong: for a check that
    /// goes on to look at the files that the configuration names. Such values are not to be used.
    pub fn examine(file: Option<&Path>, flags: &[Flag]) -> (Loaded, Option<Report>) {
        let Some(path) = file else {
            return Parser::new(None).parse("", String::new(), flags);
        };
        let name = path.display().to_string();
        let text = match lines::text_of(path, FILE_BYTES_MAX) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot read the configuration {name}: {error}");
                let report = Report::of(message, "give the file with --config FILE");
                return (Parser::new(None).loaded, Some(report));
            }
        };
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let (mut loaded, report) = Parser::new(Some(folder)).parse(&name, text, flags);
        loaded.file = Some(path.to_owned());
        (loaded, report)
    }

    /// Reads the text of a file that is called `name` and includes nothing.
    pub fn parse(name: &str, text: &str, flags: &[Flag]) -> Result<Loaded, Report> {
        let (loaded, report) = Parser::new(None).parse(name, text.to_owned(), flags);
        report.map_or(Ok(loaded), Err)
    }
}

struct Parser {
    sources: Vec<Arc<Source>>,
    /// The source that is being read.
    current: usize,
    /// Where includes are looked for.
    folder: Option<PathBuf>,
    problems: Vec<Problem>,
    loaded: Loaded,
    /// The places of values in the files, for errors that are about several of them.
    spans: BTreeMap<String, (usize, Range<usize>)>,
    /// The rules that were read, with their places; they become one table.
    table_rules: Vec<((usize, Range<usize>), larder_rules::Rule)>,
    /// The tables with mistakes that were reported, by kind, name and place: what only follows from these is not reported too.
    faulty: Vec<(String, String, SourceLine)>,
}

impl Parser {
    fn new(folder: Option<PathBuf>) -> Parser {
        let loaded = Loaded { config: Config::default(), sources: BTreeMap::new(), file: None, files: Vec::new() };
        Parser {
            sources: Vec::new(),
            current: 0,
            folder,
            problems: Vec::new(),
            loaded,
            spans: BTreeMap::new(),
            table_rules: Vec::new(),
            faulty: Vec::new(),
        }
    }

    fn parse(mut self, name: &str, text: String, flags: &[Flag]) -> (Loaded, Option<Report>) {
        self.file(name, text);
        self.included();
        flags.iter().for_each(|flag| self.flag(flag));
        self.finish();
        let report = (!self.problems.is_empty()).then(|| Report::new(self.sources, self.problems));
        (self.loaded, report)
    }

    fn file(&mut self, name: &str, text: String) {
        // Flags and tests have texts that lie in no file.
        if self.folder.is_some() {
            let secrets = text.split("${FILE:").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
            self.loaded.files.extend([name].into_iter().chain(secrets).map(PathBuf::from));
        }
        let source = Arc::new(Source::new(name, text));
        self.current = self.sources.len();
        self.sources.push(Arc::clone(&source));
        let (document, errors) = DeTable::parse_recoverable(&source.text);
        if !errors.is_empty()
            && let Some((message, hint)) = foreign::whole_file(name, &source.text)
        {
            return self.problem(0..0, message, Some(hint));
        }
        for error in errors {
            let (source, message) = (self.current, error.message().to_owned());
            self.problems.push(Problem { source, at: error.span(), message, hint: None });
        }
        for (key, value) in document.get_ref() {
            match (&**key.get_ref(), value.get_ref()) {
                ("include", _) if self.current > 0 => {
                    let message = "a file that is included includes no others".to_owned();
                    self.problem(key.span(), message, Some("name all in the first file".to_owned()));
                }
                ("listen", _) => self.listens(value),
                ("site", _) => self.sites(value),
                ("store_rule", _) => self.store_rules(value),
                ("mirror", _) => self.mirrors(value),
                ("list", _) => self.lists(value),
                ("bandwidth", _) => self.bandwidths(value),
                ("parent", _) => self.parents(value),
                ("sibling", _) => self.siblings(value),
                ("python", _) => self.pythons(value),
                ("origin", _) => self.origins(value),
                ("icap", _) => self.icaps(value),
                ("rule", _) => self.rules(value),
                ("helper", _) => self.helpers(value),
                ("login", _) => self.logins(value),
                (section, DeValue::Table(inner)) if is_section(section) => self.section(section, inner),
                (section, other) if is_section(section) => {
                    let message = format!("{section} is a table, not {}", kind(other));
                    self.problem(value.span(), message, Some(format!("write [{section}] on a line of its own")));
                }
                (name, _) => self.setting(name, key, value),
            }
        }
    }

    /// Reads what the first file includes, as if it stood behind it.
    fn included(&mut self) {
        let (Some(folder), Some((_, span))) = (self.folder.clone(), self.spans.get("include").cloned()) else {
            if let Some((_, span)) = self.spans.get("include").cloned() {
                self.problem(span, "include: only a file can include others".to_owned(), None);
            }
            return;
        };
        for pattern in self.loaded.config.include.clone() {
            // A folder that has no file yet may get one later.
            self.loaded.files.push(folder.join(&pattern));
            match places::matching(&folder, &pattern) {
                Ok(paths) => paths.into_iter().for_each(|path| self.include(&path, &span)),
                Err(trouble) => self.include_problem(&span, trouble),
            }
        }
    }

    fn include(&mut self, path: &Path, span: &Range<usize>) {
        match lines::text_of(path, FILE_BYTES_MAX) {
            Ok(text) => self.file(&path.display().to_string(), text),
            Err(error) => self.include_problem(span, format!("cannot read {}: {error}", path.display())),
        }
    }

    fn include_problem(&mut self, span: &Range<usize>, trouble: String) {
        let hint = Some("paths begin at the folder of this file; `*` may stand in the last part".to_owned());
        let message = format!("include: {trouble}");
        self.problems.push(Problem { source: 0, at: Some(span.clone()), message, hint });
    }

    fn section(&mut self, section: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            self.setting(&format!("{section}.{}", key.get_ref()), key, value);
        }
    }

    fn setting(&mut self, name: &str, key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            let section = name.split_once('.').map_or("", |(section, _)| section);
            self.unknown(section, SETTINGS, key);
            return;
        };
        if let Some(ValueSource::Line(file, line)) = self.loaded.sources.get(setting.name) {
            let (message, hint) = (format!("{name} is said twice"), format!("the other place is {file}:{line}"));
            self.problem(key.span(), message, Some(hint));
        }
        self.spans.insert(name.to_owned(), (self.current, value.span()));
        self.said_in_file(setting.name, value);
        let taken = setting.take(&mut self.loaded.config, value.get_ref());
        self.taken(setting.name, value.span(), taken);
    }

    fn listens(&mut self, value: &Spanned<DeValue<'_>>) {
        let mut listens = match self.loaded.sources.contains_key("listen") {
            true => std::mem::take(&mut self.loaded.config.listens),
            false => Vec::new(),
        };
        self.said_in_file("listen", value);
        for (span, table) in self.tables("listen", value) {
            let mut listen = Listen::at(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
            let missing = self.entry("listen", LISTEN, &span, table, &mut listen, &["tls"]);
            if let Some(tls) = table.get("tls") {
                for (span, table) in self.tables("listen.tls", tls) {
                    let mut files = CertificateFiles { chain: PathBuf::new(), key: PathBuf::new() };
                    self.entry("listen.tls", LISTEN_TLS, &span, table, &mut files, &[]);
                    listen.tls.push(files);
                }
            }
            listen.place = self.place(&span);
            self.check_listen(&span, &listen, &listens, missing);
            listens.push(listen);
        }
        if matches!(value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            self.problem(
                value.span(),
                "no listener is left".to_owned(),
                Some("leave `listen` out for the default".to_owned()),
            );
        }
        self.loaded.config.listens = listens;
    }

    fn check_listen(&mut self, span: &Range<usize>, listen: &Listen, earlier: &[Listen], missing: bool) {
        let twice = (listen.address.port() != 0 || listen.socket.is_some())
            && earlier.iter().any(|other| other.address == listen.address);
        if twice && !missing {
            self.problem(span.clone(), format!("{} is listened on twice", listen.name()), None);
        }
        if listen.intercept && listen.origin.is_some() {
            let message = "a listener with an origin has no tunnels to intercept".to_owned();
            self.problem(span.clone(), message, Some("leave out `intercept` or `origin`".to_owned()));
        }
        if listen.forward == Some(true) && listen.origin.is_some() {
            let message = "a listener with an origin is no forward proxy".to_owned();
            self.problem(span.clone(), message, Some("give the forward proxy a listener of its own".to_owned()));
        }
        if matches!(listen.mirror, MirrorSetting::Always(Mirroring::All | Mirroring::Named)) && listen.origin.is_some()
        {
            let message = "a listener with an origin is no mirror".to_owned();
            self.problem(span.clone(), message, Some("give the mirror a listener of its own".to_owned()));
        }
        self.check_client_certificates(span, listen);
        self.check_transparent(span, listen);
        self.check_socks_listener(span, listen);
        self.check_http3(span, listen);
        self.check_unix_socket(span, listen);
        self.check_pass_through(span, listen);
        if listen.forward == Some(false) && listen.intercept {
            let message = "a listener that is no forward proxy has no tunnels to intercept".to_owned();
            self.problem(span.clone(), message, Some("leave out `intercept` or `forward`".to_owned()));
        }
    }

    /// A transparent listener stands in the place of other servers, so all that makes it a server of its own is refused.
    fn check_transparent(&mut self, span: &Range<usize>, listen: &Listen) {
        let wrong = match listen.transparent {
            Transparent::Off => return,
            _ if listen.origin.is_some() => "origin",
            _ if listen.is_tls() => "tls",
            _ if listen.forward == Some(false) => "forward",
            _ if !listen.proxy_protocol.is_empty() => "proxy_protocol",
            _ if matches!(listen.mirror, MirrorSetting::Always(Mirroring::All | Mirroring::Named)) => "mirror",
            _ => return,
        };
        let message =
            format!("a transparent listener serves connections that were opened to other servers: it has no `{wrong}`");
        self.problem(span.clone(), message, Some(format!("leave out `{wrong}`, or give it a listener of its own")));
    }

    /// No request of HTTP comes to a listener of SOCKS itself.
    fn check_socks_listener(&mut self, span: &Range<usize>, listen: &Listen) {
        let wrong = match listen.socks {
            false => return,
            _ if listen.origin.is_some() => "origin",
            _ if listen.is_tls() => "tls",
            _ if listen.forward == Some(false) => "forward",
            _ if listen.transparent.is_on() => "transparent",
            _ if matches!(listen.mirror, MirrorSetting::Always(Mirroring::All | Mirroring::Named)) => "mirror",
            _ => return,
        };
        let message = format!("clients of a listener with `socks` ask for connections alone: it has no `{wrong}`");
        self.problem(span.clone(), message, Some(format!("leave out `{wrong}`, or give it a listener of its own")));
    }

    fn sites(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("site", value);
        let mut sites = self.loaded.config.sites.all().cloned().collect::<Vec<_>>();
        for (span, table) in self.tables("site", value) {
            let mut site = any_site();
            let missing = self.entry("site", SITE, &span, table, &mut site, &["route"]);
            site.place = self.place(&span);
            if let Some(routes) = table.get("route") {
                self.site_routes(routes, &mut site);
            }
            if site.hosts.is_empty() && !missing && table.contains_key("hosts") {
                self.problem(span.clone(), "a site without a host is never reached".to_owned(), None);
            }
            let same = |other: &&Site| {
                sites::resolved(&other.prefix) == sites::resolved(&site.prefix)
                    && other.pass_through == site.pass_through
            };
            let taken =
                sites.iter().filter(same).find_map(|other| site.hosts.iter().find(|host| other.hosts.contains(host)));
            if let Some(host) = taken {
                let message = format!("{host} with the prefix {} is in an earlier site already", site.prefix);
                self.problem(span, message, None);
            }
            sites.push(site);
        }
        self.loaded.config.sites = Sites::new(sites);
    }

    fn site_routes(&mut self, value: &Spanned<DeValue<'_>>, site: &mut Site) {
        for (span, table) in self.tables("site.route", value) {
            let mut route = any_route();
            self.entry("site.route", SITE_ROUTE, &span, table, &mut route, &[]);
            if site.routes.iter().any(|other| other.name == route.name) {
                self.problem(span.clone(), format!("the site has a route {} already", route.name), None);
            }
            if site.hooks.is_empty() {
                let message = "a route is chosen by hooks, and the site has none".to_owned();
                self.problem(span, message, Some("write `hooks = [\"policy.py\"]` in the site".to_owned()));
            }
            site.routes.push(route);
        }
    }

    fn store_rules(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("store_rule", value);
        for (span, table) in self.tables("store_rule", value) {
            let mut rule = StoreRule::default();
            let is_faulty = self.entry("store_rule", STORE_RULE, &span, table, &mut rule, &[]);
            rule.place = self.place(&span);
            if is_faulty {
                self.loaded.config.store_rules.push(rule);
                continue;
            }
            if !rule.says_anything() {
                let hint = "add `drop_query`, `signed_query`, `lifetime`, `lifetime_min`, `any_age`, `drop_no_cache` or another of `larder config store_rule`";
                let message = "a store rule that says nothing of the requests that it matches".to_owned();
                self.problem(span.clone(), message, Some(hint.to_owned()));
            }
            if !rule.drop_query.is_empty() && !rule.signed_query.is_empty() {
                let message = "`drop_query` and `signed_query` are not for the same rule".to_owned();
                let hint = "`drop_query` is for parameters that say nothing, `signed_query` for those of a signature";
                self.problem(span.clone(), message, Some(hint.to_owned()));
            }
            if rule.same_tree.len() == 1 || (!rule.same_tree.is_empty() && !rule.signed_query.is_empty()) {
                let message = "`same_tree` needs two origins or more, and no `signed_query`".to_owned();
                self.problem(span.clone(), message, None);
            }
            if rule.by_credential && rule.hosts.is_empty() {
                let hint = "name the hosts of the registry";
                self.problem(span.clone(), "`by_credential` needs `hosts`".to_owned(), Some(hint.to_owned()));
            }
            if !rule.drop_query.is_empty() && rule.hosts.is_empty() {
                let hint =
                    "name the hosts whose answers do not depend on these parameters; hosts = [\"*\"] if all are meant";
                self.problem(span, "`drop_query` needs `hosts`".to_owned(), Some(hint.to_owned()));
            }
            self.loaded.config.store_rules.push(rule);
        }
    }

    fn mirrors(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("mirror", value);
        for (span, table) in self.tables("mirror", value) {
            let mut mirror = mirrors::any_mirror();
            let missing = self.entry("mirror", MIRROR, &span, table, &mut mirror, &[]);
            mirror.place = self.place(&span);
            let is_taken = self.loaded.config.mirrors.iter().any(|other| other.name == mirror.name);
            if is_taken && !missing {
                self.problem(span.clone(), format!("there is a mirror {} already", mirror.name), None);
            }
            if let Some(credentials) = &mirror.credentials
                && (!mirror.registry || !credentials.reveal().contains(':'))
            {
                let message = "credentials are `user:password`, for a mirror with `registry = true`".to_owned();
                let hint = "tools send credentials for other mirrors themselves".to_owned();
                self.problem(span.clone(), message, Some(hint));
            }
            if mirror.registry && &*mirror.origin.path != "/" {
                let message = "the origin of a registry has no path".to_owned();
                self.problem(span, message, Some("write scheme, host and port alone".to_owned()));
            }
            self.loaded.config.mirrors.push(Arc::new(mirror));
        }
    }

    /// The tables of an array of tables; anything else is a problem.
    fn tables<'v>(&mut self, name: &str, value: &'v Spanned<DeValue<'_>>) -> Vec<(Range<usize>, &'v DeTable<'v>)> {
        let mut tables = Vec::new();
        let header = match name.contains('.') {
            true => {
                let inline = match name {
                    "origin.member" => "url = \"http://10.0.0.1:8000\"",
                    "site.route" => "name = \"b\", origin = \"http://10.0.0.6:9000\"",
                    _ => "chain = \"chain.pem\", key = \"key.pem\"",
                };
                format!("begin each with [[{name}]], or write it as [{{ {inline} }}]")
            }
            false => format!("write [[{name}]] on a line of its own for each"),
        };
        let DeValue::Array(items) = value.get_ref() else {
            self.problem(
                value.span(),
                format!("{name} is a list of tables, not {}", kind(value.get_ref())),
                Some(header),
            );
            return tables;
        };
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => tables.push((item.span(), table)),
                other => {
                    self.problem(
                        item.span(),
                        format!("{name} is a list of tables, this is {}", kind(other)),
                        Some(header.clone()),
                    );
                }
            }
        }
        tables
    }

    /// Reads one table of an array into `to`; the keys in `others` are read elsewhere. Says whether something is wrong with it, so that
    /// no more errors are made of that.
    fn entry<T: Clone>(
        &mut self,
        section: &str,
        settings: &'static [Setting<T>],
        span: &Range<usize>,
        table: &DeTable<'_>,
        to: &mut T,
        others: &[&str],
    ) -> bool {
        let before = self.problems.len();
        let name = table.get("name").and_then(|name| name.get_ref().as_str()).unwrap_or_default();
        let mut misspelt = Vec::new();
        for (key, value) in table {
            match settings.iter().find(|setting| setting.key() == key.get_ref()) {
                Some(setting) => {
                    let taken = setting.take(to, value.get_ref());
                    let label = match name {
                        "" => setting.name.to_owned(),
                        _ if setting.key() == "name" => setting.name.to_owned(),
                        name => format!("{} of {name}", setting.name),
                    };
                    self.taken(&label, value.span(), taken);
                }
                None if others.contains(&&**key.get_ref()) => {}
                None => misspelt.extend(self.unknown(section, settings, key)),
            }
        }
        let is_missing = |setting: &&Setting<T>| setting.required && !table.contains_key(setting.key());
        for setting in settings.iter().filter(is_missing).filter(|setting| !misspelt.contains(&setting.name)) {
            let of = if name.is_empty() { String::new() } else { format!(" in {section} {name}") };
            let message = format!("`{}` is missing{of}", setting.key());
            self.problem(span.clone(), message, Some(setting.about.to_owned()));
        }
        let is_faulty = self.problems.len() > before;
        if is_faulty {
            let place = self.place(span);
            self.faulty.push((section.to_owned(), name.to_owned(), place));
        }
        is_faulty
    }

    /// Whether there is a table of this kind and name that could not be read: it is not said to be missing.
    fn is_faulty(&self, table: &str, name: &str) -> bool {
        self.faulty.iter().any(|(kind, known, _)| kind == table && known == name)
    }

    fn flag(&mut self, flag: &Flag) {
        match flag {
            Flag::Setting(name, text) => {
                let Some(setting) = SETTINGS.iter().find(|setting| setting.name == *name) else { return };
                self.loaded.sources.insert(setting.name, ValueSource::Flag(setting.name));
                self.spans.remove(*name);
                if let Err(refusal) = setting.take_flag(&mut self.loaded.config, text) {
                    self.flag_problem(name, refusal.message, refusal.hint);
                }
            }
            Flag::Listen(text) => {
                if self.loaded.sources.insert("listen", ValueSource::Flag("listen"))
                    != Some(ValueSource::Flag("listen"))
                {
                    self.loaded.config.listens.clear();
                }
                match text.parse() {
                    Ok(address) => self.loaded.config.listens.push(Listen::at(address)),
                    Err(_) => self.flag_problem(
                        "listen",
                        format!("\"{text}\" is not an ADDR:PORT"),
                        Some("write it as 127.0.0.1:3128".to_owned()),
                    ),
                }
            }
            Flag::Registry(text) => match url::parse(text) {
                Some(origin) => {
                    self.loaded.sources.entry("mirror").or_insert(ValueSource::Flag("registry"));
                    self.loaded.config.mirrors.push(Arc::new(Mirror::registry(origin)));
                }
                None => {
                    let hint = "write it as https://registry.example, without user, query or fragment";
                    let message = format!("\"{text}\" is not an http or https URL");
                    self.flag_problem("registry", message, Some(hint.to_owned()));
                }
            },
            Flag::Origin(text) => {
                let hint = "write it as http://10.0.0.5:9000, http+unix:/run/app.sock, wsgi:package.module:application or the name of an [[origin]]";
                let Some(origin) = url::parse_origin(text).map(SiteOrigin::new).map(Arc::new) else {
                    return self.flag_problem(
                        "origin",
                        format!("\"{text}\" is not an http or https URL, a socket, an application or a name"),
                        Some(hint.to_owned()),
                    );
                };
                self.loaded.sources.entry("listen").or_insert(ValueSource::Flag("origin"));
                for listen in &mut self.loaded.config.listens {
                    listen.origin = Some(Arc::clone(&origin));
                    listen.intercept = false;
                    listen.forward = None;
                }
            }
        }
    }

    /// Sets the values that follow from others, and reports those that do not go together.
    fn finish(&mut self) {
        self.find_origin_groups();
        self.mounts();
        self.finish_rules();
        self.check_people();
        self.check_acme();
        self.check_http3_sites();
        self.check_cluster();
        let config = &mut self.loaded.config;
        if !self.loaded.sources.contains_key("memory_object_bytes_max") {
            config.memory_object_bytes_max = Config::memory_object_bytes_max_for(config.memory_bytes);
        }
        if !self.loaded.sources.contains_key("object_bytes_max") {
            config.object_bytes_max = Config::object_bytes_max_for(config.disk_bytes);
        }
        let (object, memory) = (config.memory_object_bytes_max, config.memory_bytes);
        if object > memory {
            self.conflict("memory_object_bytes_max", "an object may not be larger than `memory`", None);
        }
        let (admin, token) = (self.loaded.config.admin, &self.loaded.config.admin_token);
        if admin.is_some_and(|address| !address.ip().is_loopback()) && token.is_none() {
            let remedy = "write admin_token = \"${ENV:LARDER_ADMIN_TOKEN}\", or choose an address of 127.0.0.1";
            self.conflict("admin", "an address that others can reach needs `admin_token`", Some(remedy));
        } else if self.loaded.sources.contains_key("admin") && self.loaded.config.page_is_closed() {
            let remedy = "write admin_token = \"${ENV:LARDER_ADMIN_TOKEN}\", or admin = \"none\": the commands use the control socket";
            let message = "beside a listener that others can reach the page needs `admin_token`";
            self.conflict("admin", message, Some(remedy));
        }
    }

    fn conflict(&mut self, name: &str, message: &str, hint: Option<&str>) {
        let (source, at) = self.spans.get(name).cloned().unzip();
        let source = source.unwrap_or_default();
        self.problems.push(Problem {
            source,
            at,
            message: format!("{name}: {message}"),
            hint: hint.map(str::to_owned),
        });
    }

    fn place(&self, span: &Range<usize>) -> SourceLine {
        let source = &self.sources[self.current];
        SourceLine(Some((Arc::clone(&source.name), source.line(span.start))))
    }

    fn said_in_file(&mut self, name: &'static str, value: &Spanned<DeValue<'_>>) {
        let source = &self.sources[self.current];
        let line = source.line(value.span().start);
        self.loaded.sources.insert(name, ValueSource::Line(Arc::clone(&source.name), line));
    }

    fn taken(&mut self, name: &str, span: Range<usize>, taken: Result<(), Refusal>) {
        if let Err(refusal) = taken {
            let at = refusal.at.unwrap_or(span);
            self.problem(at, format!("{name}: {}", refusal.message), refusal.hint);
        }
    }

    fn problem(&mut self, at: Range<usize>, message: String, hint: Option<String>) {
        self.problems.push(Problem { source: self.current, at: Some(at), message, hint });
    }

    fn flag_problem(&mut self, flag: &str, message: String, hint: Option<String>) {
        self.problems.push(Problem { source: 0, at: None, message: format!("--{flag}: {message}"), hint });
    }
}

/// A site that has all defaults. Its origin stands where one is missing; such a configuration is never handed out.
pub(super) fn any_site() -> Site {
    let host = Host::parse("origin.invalid").expect("a valid name");
    let origin = Arc::new(SiteOrigin::new(Url { scheme: Scheme::Http, host, port: 80, path: "/".into() }));
    Site {
        hosts: Vec::new(),
        prefix: "/".to_owned(),
        origin,
        host_header: HostHeader::Client,
        certificate: SiteCertificate::None,
        http2: None,
        proxy_protocol: None,
        pass_through: false,
        compression: Arc::default(),
        python: String::new(),
        hooks: Vec::new(),
        hooked_by: None,
        routes: Vec::new(),
        login: String::new(),
        external: Vec::new(),
        url_rewrite: String::new(),
        store_id: String::new(),
        place: SourceLine::default(),
    }
}

/// A route that has all defaults, as [`any_site`].
pub(super) fn any_route() -> SiteRoute {
    SiteRoute { name: String::new(), origin: any_site().origin }
}

fn is_section(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name.split_once('.').is_some_and(|(section, _)| section == name))
}
