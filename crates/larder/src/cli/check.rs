//! `larder check`: what is wrong with a configuration, and what it would do.

use super::{Flags, TROUBLE, WRONG, print};
use crate::acme;
use crate::clock;
use crate::config::application::Interface;
use crate::config::places::Here;
use crate::config::rule::RuleSettings;
use crate::config::{
    CertificateFiles, Config, Listen, Loaded, LogTo, Login, LoginScheme, Mount, Python, Report, Transparent,
    ValueSource,
};
use crate::diagnostics;
use crate::explain::{self, Asking, Harmless};
use crate::lists::{self, CountryFile};
use crate::mount::MountTrouble;
use crate::people;
use crate::rehearse::{self, Side};
use crate::run::folder::Temporary;
use crate::script::{self, Nursery};
use crate::tls::clients::ClientTrust;
use crate::tls::served::ServedCertificate;
use crate::tls::server::Certificates;
use clap::Args;
use larder_rules::never::{Never, never};
use larder_rules::{Rule, Verdict, When};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
pub(super) struct CheckFlags {
    #[command(flatten)]
    flags: Flags,
    /// Say what would happen to a request, decision by decision
    #[arg(long, value_name = "'GET URL'", conflicts_with = "replay")]
    request: Option<String>,
    /// A field of the request
    #[arg(long = "header", short = 'H', value_name = "'NAME: VALUE'", requires = "request")]
    header: Vec<String>,
    /// A field of the answer that the origin is taken to give, or its status
    #[arg(long, value_name = "'NAME: VALUE'", requires = "request")]
    answer: Vec<String>,
    /// The client that asks
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    client: IpAddr,
    /// The user who has logged in, wherever a login counts
    #[arg(long, value_name = "NAME", requires = "request")]
    user: Option<String>,
    /// A group of that user, beside those in the login's file of groups
    #[arg(long = "group", value_name = "NAME", requires = "user")]
    group: Vec<String>,
    /// A name in the certificate that the client has shown to the listener; the first one is the user where the listener takes one
    #[arg(long, value_name = "NAME", requires = "request")]
    certificate: Vec<String>,
    /// The name for which the client's TLS asks (SNI); without it the host of the URL
    #[arg(long, value_name = "HOST", requires = "request")]
    sni: Option<String>,
    /// The listener that is asked; without it the one that fits the URL, or the first
    #[arg(long, value_name = "ADDR:PORT", requires = "request")]
    at: Option<SocketAddr>,
    /// Play an access log (combined, Squid's, JSON; - is standard input) and say what would come of it
    #[arg(long, value_name = "LOG")]
    replay: Option<PathBuf>,
    /// Play it through this configuration too, and say what differs
    #[arg(long, value_name = "FILE", requires = "replay")]
    against: Option<PathBuf>,
    /// The host of lines that name none, as in the log of a web server
    #[arg(long, value_name = "HOST", requires = "replay")]
    host: Option<String>,
}

pub(super) fn check(flags: &CheckFlags) -> u8 {
    if flags.request.is_none() && flags.replay.is_none() {
        return verify(&flags.flags);
    }
    let loaded = match flags.flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    match (&flags.request, &flags.replay) {
        (Some(request), _) => ask(flags, request, &loaded),
        (None, replay_of) => replay_of.as_ref().map_or(0, |log| replay(flags, log, &loaded)),
    }
}

/// Also looks at the files that it names, whatever else is wrong: a person gets everything at once.
fn verify(flags: &Flags) -> u8 {
    let (loaded, report) = flags.examine(Here::Looked);
    let mut troubles = troubles(&loaded);
    let (list_troubles, list_notes) = examine_lists(&loaded);
    troubles.extend(list_troubles);
    // As a process would load them; not, where a fault of the configuration would be told a second time by that.
    if report.is_none() && troubles.is_empty() {
        troubles.extend(hook_troubles(&loaded));
    }
    if let Some(report) = Report::and(report, troubles) {
        diagnostics::say_text(format_args!("{report}"));
        return WRONG;
    }
    let config = &loaded.config;
    let addresses: Vec<String> = config.listens.iter().map(Listen::name).collect();
    let file = loaded.file.as_ref().map_or("no file, so all defaults".to_owned(), |file| file.display().to_string());
    let page = match config.page_is_closed() {
        true => "note: the page answers nobody without `admin_token`, for others can connect to a listener\n",
        false => "",
    };
    let own_programs = own_programs(config).unwrap_or_default();
    let claims = transparent_notes(config) + &claims_for_all(config);
    let ends = certificates_that_end(config);
    let stored_for_all: String =
        config.rules.iter().filter(|rule| rule.does.even_if_private).map(stored_for_all).collect();
    let never: String = never(config.rule_table.table.rules()).into_iter().map(never_holds).collect();
    let of_people: String =
        people::examine(config).unwrap_or_default().iter().map(|note| format!("note: {note}\n")).collect();
    let idle = named_nowhere(config);
    let bounds: String = config.mounts.iter().map(|mount| script::bounds(mount)).collect();
    print(format!(
        "the configuration is right ({file}): listens on {}, {}\n{page}{own_programs}{claims}{ends}{stored_for_all}{never}{of_people}{idle}{bounds}{list_notes}",
        addresses.join(", "),
        match config.sites.all().count() {
            1 => "1 site".to_owned(),
            many => format!("{many} sites"),
        }
    ))
}

/// The notes on tables that nothing names: somebody who writes a login takes it for asked for.
fn named_nowhere(config: &Config) -> String {
    let rules = config.rule_table.table.rules();
    let is_asked = |name: &str| {
        let is_of_rule = |rule: &Rule| matches!(&rule.does.verdict, Some(Verdict::Login(login)) if **login == *name);
        config.access.login == name
            || config.sites.iter().any(|site| site.login == name)
            || config.logins.iter().any(|login| login.users == name)
            || rules.iter().any(is_of_rule)
    };
    let mut lists = BTreeSet::new();
    let mut left: Vec<&When> = rules.iter().map(|rule| &*rule.when).collect();
    while let Some(when) = left.pop() {
        lists.extend(when.list.iter().map(|list| &**list));
        left.extend(when.not.iter().chain(&when.any));
    }
    let is_limit = |name: &str| rules.iter().any(|rule| rule.does.bandwidth.iter().any(|limit| **limit == *name));
    let logins = config.logins.iter().filter(|login| !is_asked(&login.name)).map(|login| {
        let remedy = "set access.login for the forward proxy, `login` of a site, or do.login of a rule";
        format!(
            "note: [[login]] {} ({}) is asked for nowhere, so nobody has to log in by it: {remedy}\n",
            login.name, login.place
        )
    });
    let lists = config.lists.iter().filter(|list| !lists.contains(&*list.name)).map(|list| {
        let remedy = format!("write a [[rule]] with when = {{ list = {:?} }}", list.name);
        format!("note: [[list]] {} ({}) decides nothing, for no rule names it: {remedy}\n", list.name, list.place)
    });
    let limits = config.bandwidths.iter().filter(|limit| !is_limit(&limit.name)).map(|limit| {
        let remedy = format!("write a [[rule]] with do = {{ bandwidth = {:?} }}", limit.name);
        format!("note: [[bandwidth]] {} ({}) limits nothing, for no rule names it: {remedy}\n", limit.name, limit.place)
    });
    logins.chain(lists).chain(limits).collect()
}

/// The files of hooks that can't be loaded, each with its place in the file.
fn hook_troubles(loaded: &Loaded) -> Vec<String> {
    let Some(hooks) = LoadedHooks::begin(loaded) else { return Vec::new() };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(hooks.wait()),
        Err(error) => vec![format!("no runtime: {error}; raise the open file limit")],
    }
}

/// The note on a login that the programs of this machine need too: a listener of localhost looks as if it let them through.
fn own_programs(config: &Config) -> Option<String> {
    let login = &config.access.login;
    let is_of_proxy = |listen: &&Listen| listen.is_of_this_machine() && listen.forwarding().beside(&config.sites);
    let listen = config.listens.iter().filter(|_| !login.is_empty()).find(is_of_proxy)?;
    let takes_passwords =
        |known: &&Arc<Login>| known.name == *login && matches!(known.scheme, LoginScheme::Basic | LoginScheme::Digest);
    let remedy = match config.logins.iter().find(takes_passwords) {
        Some(_) => format!(": give them http://USER:PASSWORD@{} as their proxy", listen.name()),
        None => String::new(),
    };
    Some(format!(
        "note: programs of this machine have to log in by [[login]] {login} too, at {} ({}){remedy}\n",
        listen.name(),
        listen.place
    ))
}

/// The notes on certificates of listeners and sites that clients refuse, or soon will.
fn certificates_that_end(config: &Config) -> String {
    let now = clock::now();
    let files = config.listens.iter().flat_map(|listen| listen.tls.iter().map(move |files| (listen, files)));
    let note = |(listen, files): (&Listen, &CertificateFiles)| {
        let served = ServedCertificate::read(files).ok().flatten()?;
        Some(format!("note: listen {} ({}): {}\n", listen.name(), listen.place, served.trouble(now)?))
    };
    let of_sites = acme::notes(config).into_iter().map(|note| format!("note: {note}\n"));
    files.filter_map(note).chain(of_sites).collect()
}

/// The note on listeners at which anybody may claim any address.
fn claims_for_all(config: &Config) -> String {
    let is_open = |listen: &&Listen| listen.proxy_protocol.iter().any(|network| network.prefix_len() == 0);
    let note = |listen: &Listen| {
        format!(
            "note: anybody may claim any address at {} ({}): let proxy_protocol name the balancers alone\n",
            listen.name(),
            listen.place
        )
    };
    config.listens.iter().filter(is_open).map(note).collect()
}

/// The notes on transparent listeners that are not what they look like.
fn transparent_notes(config: &Config) -> String {
    let mut notes = String::new();
    for listen in config.listens.iter().filter(|listen| listen.transparent.is_on()) {
        let at = format!("{} ({})", listen.name(), listen.place);
        if !config.access.login.is_empty() {
            notes += &format!(
                "note: clients at the transparent listener {at} can't be asked for a login, and access.login refuses them: leave it out, or log in by rules for other clients\n"
            );
        }
        if listen.transparent == Transparent::Redirect && listen.address.ip().is_loopback() {
            notes += &format!(
                "note: REDIRECT leads connections of other machines to an address of their interface, and none to {at}: bind it to [::]\n"
            );
        }
    }
    notes
}

/// The faults in the files of lists, and notes on those that are right.
fn examine_lists(loaded: &Loaded) -> (Vec<String>, String) {
    let mut troubles = Vec::new();
    let mut notes = String::new();
    for list in &loaded.config.lists {
        let (trouble, more) = lists::examine(list);
        troubles.extend(trouble.map(|trouble| format!("list {} ({}): {trouble}", list.name, list.place)));
        more.iter().for_each(|note| notes += &format!("note: list {} ({}): {note}\n", list.name, list.place));
    }
    if let Some(path) = &loaded.config.access.country_file {
        match CountryFile::read(path) {
            Ok(file) => notes += &countries_without_addresses(&loaded.config, &file),
            Err(trouble) => troubles.push(trouble),
        }
    }
    (troubles, notes)
}

/// The note on countries that rules name and no address is of, as `UK`, which is `GB` in ISO 3166: a rule about one never holds.
fn countries_without_addresses(config: &Config, file: &CountryFile) -> String {
    let mut named = BTreeSet::new();
    let mut left: Vec<&When> = config.rules.iter().map(|rule| &*rule.when).collect();
    while let Some(when) = left.pop() {
        let codes = when.country.iter().chain(&when.destination_country).copied();
        named.extend(codes.filter(|code| !file.countries().has(*code)));
        left.extend(when.not.iter().chain(&when.any));
    }
    let note = |code: [u8; 2]| {
        let (code, path) = (String::from_utf8_lossy(&code).into_owned(), file.path().display());
        format!("note: country and destination_country of rules: {path} has no address of {code}\n")
    };
    named.into_iter().map(note).collect()
}

/// The note on a rule that never holds.
fn never_holds((rule, why): (&Rule, Never<'_>)) -> String {
    let why = match why {
        Never::Behind(earlier) => format!("{earlier} before it holds whenever it would, and ends the table"),
        Never::Contradicts => "what its `not` excludes is all that the rest of its `when` is for".to_owned(),
        Never::NoPath => "it is for CONNECT alone, which has neither a path nor a query".to_owned(),
    };
    format!("note: {rule} never holds: {why}\n")
}

/// The warning about a rule that has private answers stored.
fn stored_for_all(rule: &RuleSettings) -> String {
    let name = if rule.name.is_empty() { "a rule" } else { &rule.name };
    format!(
        "WARNING: {name} ({}) has `even_if_private`: answers that their origin keeps to one client are stored, and whoever asks next gets them\n",
        rule.place
    )
}

/// The faults in the files, each with the place that names it.
fn troubles(loaded: &Loaded) -> Vec<String> {
    let config = &loaded.config;
    let place_of = |name: &str| match loaded.sources.get(name) {
        Some(ValueSource::Line(file, line)) => format!("{name} ({file}:{line})"),
        _ => name.to_owned(),
    };
    let mut troubles = Vec::new();
    if let Err(error) = crate::tls::roots(&config.upstream.extra_roots) {
        troubles.push(format!("{}: {}", place_of("upstream.extra_roots"), diagnostics::in_one_line(&error)));
    }
    for listen in config.listens.iter().filter(|listen| listen.is_tls()) {
        if let Err(error) = ClientTrust::load(&listen.clients) {
            troubles.push(format!("listen {} ({}): {}", listen.name(), listen.place, diagnostics::in_one_line(&error)));
        }
        if let Err(error) = Certificates::load(&listen.tls) {
            troubles.push(format!("listen {} ({}): {}", listen.name(), listen.place, diagnostics::in_one_line(&error)));
        }
    }
    for mount in &config.mounts {
        if let Some(trouble) = script::trouble(mount) {
            troubles.push(format!("python {} ({}): {trouble}", mount.python.name, mount.python.place));
        }
    }
    troubles.extend(people::examine(config).err());
    if let Some(LogTo::File(path)) = config.log.as_ref().map(|log| &log.to) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            let folder = folder.display();
            troubles
                .push(format!("{}: there is no folder {folder}: make it, or name another file", place_of("log.to")));
        }
    }
    troubles
}

/// A request that would be refused is trouble, so that scripts can ask.
fn ask(flags: &CheckFlags, request: &str, loaded: &Loaded) -> u8 {
    let (method, url) = request.trim().split_once(' ').unwrap_or(("GET", request.trim()));
    let asking = Asking {
        url: url.trim().to_owned(),
        method: method.to_owned(),
        fields: flags.header.clone(),
        client: flags.client,
        user: flags.user.clone(),
        groups: flags.group.clone(),
        certificate: flags.certificate.clone(),
        sni: flags.sni.clone(),
        listener: flags.at,
        answer: Some(flags.answer.clone()),
        of_run: false,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            diagnostics::say(format_args!("error: no runtime: {error}; raise the open file limit"));
            return TROUBLE;
        }
    };
    let hooks = LoadedHooks::begin(loaded);
    let explained = runtime.block_on(async {
        let mounts = match &hooks {
            Some(hooks) => {
                let troubles = hooks.wait().await;
                troubles.iter().for_each(|trouble| diagnostics::say(format_args!("note: {trouble}")));
                Some(&**hooks.nursery.mounts())
            }
            None => None,
        };
        explain::rehearse(&asking, loaded, mounts).await
    });
    drop(hooks);
    match explained {
        Ok(explanation) => {
            let is_refused = explanation.request.status >= 400;
            let hint = if flags.answer.is_empty() && explanation.request.cause.is_some() { ANSWER_HINT } else { "" };
            let of_users = if flags.user.is_none() && asks_users(loaded) { USER_HINT } else { "" };
            print(format!("{explanation}{hint}{of_users}")).max(if is_refused { TROUBLE } else { 0 })
        }
        Err(trouble) => {
            diagnostics::say(format_args!("error: {trouble}"));
            WRONG
        }
    }
}

/// The hooks of a configuration, in processes that end with this value: the filters of hooks are known once their files are loaded.
struct LoadedHooks {
    nursery: Nursery,
    _folder: Temporary,
}

/// Lines of a traceback that are shown.
const TRACE_LINES_MAX: usize = 60;

/// How long the files may take to be loaded.
const LOAD_WAIT: Duration = Duration::from_secs(10);

impl LoadedHooks {
    /// Begins to load them; `None` where there are none, or where nothing can be started.
    fn begin(loaded: &Loaded) -> Option<LoadedHooks> {
        let is_of_hooks = |mount: &&Arc<Mount>| mount.application.interface == Interface::Hooks;
        let alone = |mount: &Arc<Mount>| {
            let python = Python { processes: 1, standby: 0, ..Python::clone(&mount.python) };
            Arc::new(Mount { python: Arc::new(python), ..Mount::clone(mount) })
        };
        let mounts: Vec<Arc<Mount>> = loaded.config.mounts.iter().filter(is_of_hooks).map(alone).collect();
        if mounts.is_empty() {
            return None;
        }
        let folder = Temporary::new().ok()?;
        let nursery = Nursery::new(Arc::default(), folder.path().to_owned());
        nursery.have(&mounts).ok()?;
        Some(LoadedHooks { nursery, _folder: folder })
    }

    /// Waits until they are loaded; gives those that can't be, each with the reason.
    async fn wait(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        for state in self.nursery.mounts().all() {
            let why = match state.ready(LOAD_WAIT).await {
                Ok(()) => continue,
                Err(MountTrouble::Failed(why)) => why,
                Err(MountTrouble::Starting | MountTrouble::Busy) => {
                    format!("its files are not loaded after {} s", LOAD_WAIT.as_secs())
                }
            };
            let mount = state.mount();
            let (name, folder) = (&mount.application.name, mount.python.folder.display());
            let trace = state.report().load_failure.map(|failure| failure.traceback).unwrap_or_default();
            troubles.push(format!("{name} can't be loaded: {why} (in {folder}){}", below(&trace)));
        }
        troubles
    }
}

/// A traceback below the line about it, as a terminal may have it.
fn below(trace: &str) -> String {
    let lines = trace.trim_end().lines().take(TRACE_LINES_MAX);
    lines.map(|line| format!("\n  {}", Harmless(line))).collect()
}

impl Drop for LoadedHooks {
    fn drop(&mut self) {
        self.nursery.stop();
    }
}

const ANSWER_HINT: &str = "\nNothing is taken to be stored, and the origin to answer 200 and nothing more: \
                           --answer 'Cache-Control: max-age=60' asks for another.\n";

const USER_HINT: &str =
    "\nRules about users and groups were judged as nobody's: --user NAME --group GROUP ask as somebody.\n";

/// Whether a rule holds for some users alone.
fn asks_users(loaded: &Loaded) -> bool {
    let mut left: Vec<&When> = loaded.config.rule_table.table.rules().iter().map(|rule| &*rule.when).collect();
    while let Some(when) = left.pop() {
        if !when.user.is_empty() || !when.group.is_empty() {
            return true;
        }
        left.extend(when.not.iter().chain(&when.any));
    }
    false
}

fn replay(flags: &CheckFlags, log: &Path, loaded: &Loaded) -> u8 {
    let against = flags.against.as_ref().map(|file| Flags { config: Some(file.clone()), ..Flags::default() }.load());
    let against = match against.transpose() {
        Ok(against) => against,
        Err(status) => return status,
    };
    let opened: io::Result<Box<dyn BufRead>> = match log.to_str() {
        Some("-") => Ok(Box::new(io::stdin().lock())),
        _ => File::open(log).map(|file| Box::new(BufReader::with_capacity(1 << 18, file)) as Box<dyn BufRead>),
    };
    let sides = [Some(loaded), against.as_ref()].into_iter().flatten().map(|side| Side::new(&side.config)).collect();
    let host = flags.host.as_deref().unwrap_or("localhost");
    match opened.and_then(|log| rehearse::replay(log, sides, host)) {
        Ok(comparison) => {
            for (number, trouble) in &comparison.troubles {
                diagnostics::say(format_args!("{}:{number}: {trouble}", log.display()));
            }
            let more = comparison.unreadable - comparison.troubles.len() as u64;
            if more > 0 {
                diagnostics::say(format_args!("{}: {more} more lines that can't be read", log.display()));
            }
            let is_nothing_read = comparison.unreadable > 0 && comparison.lines == 0;
            print(comparison).max(if is_nothing_read { TROUBLE } else { 0 })
        }
        Err(error) => {
            diagnostics::say(format_args!("error: cannot read {}: {error}", log.display()));
            TROUBLE
        }
    }
}
