//! The gate of the forward proxy and of sites: a login, helpers of `external_acl` that have to permit a request, and helpers that
//! change its URL or its key.

use super::by_people::ByPeople;
use super::facts::{Asks, Facts, PeopleScene};
use super::need::{HelperNeed, Need};
use super::pages::{denied, login_gone, out_of_reach, refusal_page};
use super::{login_form, login_page, supposed, transparent};
use crate::config::LoginScheme;
use crate::config::helper::HelperFailure;
use crate::helper::{HelperTrouble, Pool};
use crate::page::{Page, PagePeople};
use crate::people::User;
use crate::record::Rule;
use larder_people::answer::{Answer, Outcome};
use larder_people::format::{Format, FormatFacts};
use larder_people::kind::Kind;
use larder_people::line;
use larder_people::note::{HelperDid, HelperNote};
use larder_rules::rule::RuleNote;
use larder_wire::reading::Reading;
use larder_wire::{Host, Method, RequestHead, Url};
use std::sync::Arc;

/// A request that is not let through.
pub(super) enum Refused {
    /// By this page.
    Page(Box<Page>),
    /// Before this fact is known.
    Needs(Need),
}

impl Refused {
    /// It is by rules of the table.
    pub(super) fn by_rule(self, note: impl Fn() -> Arc<RuleNote>) -> Refused {
        match self {
            Refused::Page(page) => page.by_rule(note()).into(),
            needs @ Refused::Needs(_) => needs,
        }
    }
}

impl From<Page> for Refused {
    fn from(page: Page) -> Refused {
        Refused::Page(Box::new(page))
    }
}

/// The settings of a gate.
struct Gate<'a> {
    asks: Asks,
    login: &'a str,
    external: &'a [String],
    url_rewrite: &'a str,
    store_id: &'a str,
}

impl Gate<'_> {
    /// Whether it asks for nothing.
    fn is_open(&self) -> bool {
        self.login.is_empty() && self.external.is_empty() && self.url_rewrite.is_empty() && self.store_id.is_empty()
    }
}

/// The target of a request, as helpers see it.
struct Target<'a> {
    url: &'a str,
    path: &'a str,
    scheme: &'a str,
    host: &'a str,
    port: u16,
}

/// Lets a CONNECT through; gives its user, and the answers of helpers. The user by the login of a rule goes before that of the gate's own.
pub(super) fn of_tunnel(
    facts: &Facts<'_>,
    by_rule: Option<Arc<User>>,
    (host, port): (&Host, u16),
) -> Result<(Option<Arc<User>>, Vec<HelperNote>), Refused> {
    let Some(scene) = facts.people() else {
        let supposed = || supposed::by_login(facts, &facts.config().access.login);
        return Ok((by_rule.or_else(supposed).or_else(|| facts.user_by_certificate()), Vec::new()));
    };
    let (access, forward) = (&facts.config().access, &facts.config().forward_helpers);
    let mut people = ByPeople::default();
    if !access.login.is_empty() {
        people.user = Some(log_in(facts, scene, &access.login, Asks::Proxy)?);
    }
    people.user = by_rule.or(people.user).or_else(|| facts.user_by_certificate());
    let authority = format!("{host}:{port}");
    let target = Target { url: &authority, path: "", scheme: "", host: host.as_str(), port };
    external(facts, scene, &access.external, &target, &mut people)?;
    if !forward.url_rewrite.is_empty() {
        let line = rewrite_line(scene, facts.whole(), &target, people.user.as_deref());
        let answer = answer_of(facts, scene, (&forward.url_rewrite, &line), &mut people)?;
        let goes_elsewhere = answer.is_some_and(|answer| {
            let to = answer.get("rewrite-url").or(answer.get("url"));
            answer.result == Outcome::Ok && to.is_some_and(|to| to != authority)
        });
        if goes_elsewhere {
            people.say("another host for a tunnel, which is refused");
            // No page could be shown inside the client's TLS, and another host would have another certificate.
            return Err(refuse(denied("url-rewrite", "A rule of this cache does not permit this tunnel."), &people));
        }
    }
    Ok((people.user, people.helpers))
}

/// Lets a request of a mirror's client through. Such clients know of no proxy, so they are asked as by a server.
pub(super) fn of_mirror(facts: &Facts<'_>, by_rule: Option<Box<ByPeople>>) -> Result<Option<Box<ByPeople>>, Refused> {
    let access = &facts.config().access;
    let Some(scene) = facts.people() else {
        return Ok(supposed::people(facts, (&access.login, Asks::Server), Rule::Mirror, by_rule));
    };
    let (is_open, user) = (access.login.is_empty() && access.external.is_empty(), facts.user_by_certificate());
    if is_open && user.is_none() {
        return Ok(by_rule);
    }
    let mut people = ByPeople { user, consumes_authorization: !is_open, ..ByPeople::default() };
    if !access.login.is_empty() {
        people.user = Some(log_in(facts, scene, &access.login, Asks::Server)?);
    }
    people.take_over(by_rule);
    if !access.external.is_empty() {
        with_target(facts, |target| external(facts, scene, &access.external, target, &mut people)).unwrap_or(Ok(()))?;
    }
    Ok(Some(Box::new(people)))
}

/// Lets a request through that a rule allows. A purge has been permitted by its client's address, and needs the key alone. The user by the
/// login of a rule of the table goes before that of the gate's own.
pub(super) fn of_request(
    facts: &mut Facts<'_>,
    rule: Rule,
    by_rule: Option<Box<ByPeople>>,
    is_purge: bool,
) -> Result<Option<Box<ByPeople>>, Refused> {
    let config = facts.config();
    let gate = match rule {
        Rule::Site(number) => {
            let Some(site) = config.sites.get(usize::from(number)) else { return Ok(by_rule) };
            Gate {
                asks: Asks::Server,
                login: &site.login,
                external: &site.external,
                url_rewrite: &site.url_rewrite,
                store_id: &site.store_id,
            }
        }
        Rule::Forward | Rule::Tunnel => Gate {
            asks: Asks::Proxy,
            // Inside a tunnel the user of the CONNECT counts.
            login: if rule == Rule::Tunnel { "" } else { &config.access.login },
            external: &config.access.external,
            url_rewrite: &config.forward_helpers.url_rewrite,
            store_id: &config.forward_helpers.store_id,
        },
        Rule::Listener => Gate { asks: Asks::Server, login: "", external: &[], url_rewrite: "", store_id: "" },
        _ => return Ok(by_rule),
    };
    let Some(scene) = facts.people() else {
        return Ok(supposed::people(facts, (gate.login, gate.asks), rule, by_rule));
    };
    let by_certificate = facts.user_by_certificate();
    if gate.is_open() && scene.user.is_none() && by_certificate.is_none() {
        return Ok(by_rule);
    }
    let user = scene.user.filter(|_| rule == Rule::Tunnel).map(Arc::clone).or(by_certificate);
    let mut people = ByPeople { user, ..ByPeople::default() };
    if !gate.login.is_empty() && !is_purge {
        people.user = Some(log_in(facts, scene, gate.login, gate.asks)?);
        (people.consumes_authorization, people.by_cookie) = of_credential(scene, (gate.login, gate.asks));
    }
    people.take_over(by_rule);
    if !is_purge && !gate.external.is_empty() {
        with_target(facts, |target| external(facts, scene, gate.external, target, &mut people)).unwrap_or(Ok(()))?;
    }
    if !gate.url_rewrite.is_empty() {
        rewrite(facts, scene, (gate.url_rewrite, rule), &mut people)?;
    }
    if !gate.store_id.is_empty() {
        store_id(facts, scene, gate.store_id, &mut people)?;
    }
    Ok((!people.is_nothing()).then(|| Box::new(people)))
}

/// The login that counts where the request came, and the side that asks for it: that of the forward proxy, of a site, or of the mirror, whose
/// clients know of no proxy. A listener that serves one site has none.
fn login_here<'a>(facts: &Facts<'a>) -> (&'a str, Asks) {
    let of_proxy = &facts.config().access.login;
    if facts.authority().is_some() {
        return (of_proxy, Asks::Proxy);
    }
    if facts.listener_origin().is_some() {
        return ("", Asks::Server);
    }
    match facts.find_site().ok().flatten() {
        Some((_, site)) => (&site.login, Asks::Server),
        None if facts.is_absolute() => (of_proxy, Asks::Proxy),
        None => (of_proxy, Asks::Server),
    }
}

/// The user for rules that name users or groups: where a login counts, such a rule asks for it. `None` where none counts.
pub(super) fn user_of_rules(facts: &Facts<'_>) -> Result<Option<Arc<User>>, Refused> {
    let Some(scene) = facts.people() else {
        return Ok(match facts.inside() {
            Some(_) => supposed::of_tunnel(facts),
            None => supposed::by_login(facts, login_here(facts).0).or_else(|| facts.user_by_certificate()),
        });
    };
    if facts.inside().is_some() {
        return Ok(scene.user.map(Arc::clone));
    }
    match login_here(facts) {
        ("", _) => Ok(facts.user_by_certificate()),
        (name, asks) => log_in(facts, scene, name, asks).map(Some),
    }
}

/// The user by the login that a rule requires. Inside an opened tunnel no page could ask for one, so the user of the CONNECT counts.
pub(super) fn required_by_rule(facts: &Facts<'_>, name: &str) -> Result<ByPeople, Refused> {
    let scene = match facts.people() {
        None if facts.supposed().is_empty() => return Ok(ByPeople::default()),
        scene => scene,
    };
    if facts.inside().is_some() {
        let user = scene.map_or_else(|| supposed::of_tunnel(facts), |scene| scene.user.map(Arc::clone));
        return match user.filter(|user| &*user.login == name) {
            Some(user) => Ok(ByPeople { user: Some(user), ..ByPeople::default() }),
            None => Err(denied("login", "A rule of this cache wants a login for the tunnel.").into()),
        };
    }
    let (_, asks) = login_here(facts);
    let Some(scene) = scene else {
        let consumes_authorization = supposed::consumes_authorization(facts, name, asks);
        return Ok(ByPeople { user: supposed::by_login(facts, name), consumes_authorization, ..ByPeople::default() });
    };
    let user = log_in(facts, scene, name, asks)?;
    let (consumes_authorization, by_cookie) = of_credential(scene, (name, asks));
    Ok(ByPeople { user: Some(user), consumes_authorization, by_cookie, ..ByPeople::default() })
}

/// Whether `Authorization` was for this login, and whether its users are known by a cookie.
fn of_credential(scene: PeopleScene<'_>, (login, asks): (&str, Asks)) -> (bool, bool) {
    let login = scene.people.login(login);
    let config = login.as_ref().map(|login| login.config());
    let takes_authorization = config.is_none_or(|config| config.takes_authorization());
    (asks == Asks::Server && takes_authorization, config.is_some_and(|config| config.scheme == LoginScheme::Form))
}

/// The user of a request, or the page that asks for a login.
fn log_in(facts: &Facts<'_>, scene: PeopleScene<'_>, name: &str, asks: Asks) -> Result<Arc<User>, Refused> {
    if let Some(page) = transparent::no_login(facts) {
        return Err(Refused::Page(Box::new(page)));
    }
    let Some(login) = scene.people.login(name) else {
        return Err(login_gone().into());
    };
    match facts.login(scene, &login, asks) {
        Err(need) => Err(Refused::Needs(need)),
        Ok(Ok(user)) => Ok(user),
        Ok(Err(refusal)) if login.config().scheme == LoginScheme::Page => {
            Err(Refused::Page(Box::new(login_page::wanted(facts, &login, &refusal, asks))))
        }
        Ok(Err(refusal)) if login.config().scheme == LoginScheme::Form => {
            Err(Refused::Page(Box::new(login_form::wanted(facts, &login, &refusal, asks))))
        }
        Ok(Err(refusal)) => Err(Refused::Page(Box::new(refusal_page(&login, &refusal, asks)))),
    }
}

/// Asks the helpers that have to permit a request, one after the other.
fn external(
    facts: &Facts<'_>,
    scene: PeopleScene<'_>,
    names: &[String],
    target: &Target<'_>,
    people: &mut ByPeople,
) -> Result<(), Refused> {
    for name in names {
        let Some(pool) = scene.people.helpers.find(name) else {
            return Err(refuse(failed(&HelperTrouble::Gone), people));
        };
        let line = match &pool.config().format {
            Some(format) => format_line(scene, facts.whole(), (format, &pool), target, people.user.as_deref()),
            None => Vec::new(),
        };
        let Some(answer) = answer_of(facts, scene, (name, &line), people)? else { continue };
        if answer.result != Outcome::Ok {
            people.say("the request is refused");
            let what = answer.get("message").unwrap_or("A rule of this cache does not permit this request.");
            return Err(refuse(denied("external", what), people));
        }
        if let Some(user) = answer.get("user").filter(|_| people.user.is_none()) {
            let groups = answer.all("group").map(Box::from).collect();
            people.user = Some(Arc::new(User { name: user.into(), groups, login: "".into() }));
        }
        let said = ["tag", "log"].into_iter().filter_map(|key| Some(format!(" {key}={}", answer.get(key)?)));
        people.say(&format!("permits it{}", said.collect::<String>()));
    }
    Ok(())
}

/// Asks the helper that may change the URL, and puts the new one in force.
fn rewrite(
    facts: &mut Facts<'_>,
    scene: PeopleScene<'_>,
    (name, rule): (&str, Rule),
    people: &mut ByPeople,
) -> Result<(), Refused> {
    let user = people.user.clone();
    let line = with_target(facts, |target| rewrite_line(scene, facts.whole(), target, user.as_deref()));
    let Some(line) = line else { return Ok(()) };
    let Some(answer) = answer_of(facts, scene, (name, &line), people)? else { return Ok(()) };
    if answer.result != Outcome::Ok {
        return Ok(());
    }
    if let (None, Some(to)) = (answer.get("rewrite-url"), answer.get("url")) {
        let status = answer.get("status").and_then(|status| status.parse().ok());
        let status = status.filter(|status| [301, 302, 303, 307, 308].contains(status)).unwrap_or(302);
        people.say(&format!("leads to {to}"));
        let page = Page::new(status, "url-rewrite", "A rule of this cache leads elsewhere.", "Follow the link.");
        return Err(refuse(page.with("Location", to), people));
    }
    let Some(written) = answer.get("rewrite-url") else { return Ok(()) };
    let url = Url::parse(written).filter(|url| is_permitted(facts, rule, url));
    match (url, facts.whole_url().cloned()) {
        (Some(url), Some(old)) if url != old => {
            if !matches!(rule, Rule::Site(_)) && facts.is_out_of_reach(&url.host, url.port) {
                people.say(&format!("asks for {url}, which is out of reach"));
                return Err(refuse(out_of_reach(), people));
            }
            people.say(&format!("asks for {url}"));
            people.client_url = Some(old);
            facts.replace_url(url);
            Ok(())
        }
        (Some(_), _) => Ok(()),
        (None, _) => {
            tracing::warn!("helper {name}: {written:?} is no URL that may be asked for here");
            let trouble = HelperTrouble::Answer(larder_people::answer::AnswerFault::Unknown);
            fails(scene, name, &trouble, people)
        }
    }
}

/// Whether a URL may take the place of another one: on a site it has to lie within that site by every reading of it.
fn is_permitted(facts: &Facts<'_>, rule: Rule, url: &Url) -> bool {
    match rule {
        Rule::Site(number) => {
            let found = facts.config().sites.find_by_every_reading(url);
            matches!(found, Ok(Some((at, _))) if at == usize::from(number))
                && matches!(Reading::of(&url.path), Reading::Path(_))
        }
        _ => true,
    }
}

/// Asks the helper that may change the key. Where a credential goes to the origin, the key stays what it is.
fn store_id(facts: &Facts<'_>, scene: PeopleScene<'_>, name: &str, people: &mut ByPeople) -> Result<(), Refused> {
    let is_read = matches!(facts.method(), Method::Get | Method::Head) || facts.method().as_str() == "PURGE";
    let is_for_one = facts.has_field("Authorization") && !people.consumes_authorization;
    if !is_read || is_for_one {
        return Ok(());
    }
    let user = people.user.clone();
    let line = with_target(facts, |target| rewrite_line(scene, facts.whole(), target, user.as_deref()));
    let Some(line) = line else { return Ok(()) };
    let Some(answer) = answer_of(facts, scene, (name, &line), people)? else { return Ok(()) };
    let id = answer.get("store-id").filter(|_| answer.result == Outcome::Ok);
    match id.map(|id| (id, Url::parse(id))) {
        None => {}
        Some((_, Some(url))) => {
            people.say(&format!("stored as {url}"));
            people.store_id = Some(url);
        }
        Some((id, None)) => {
            tracing::warn!("helper {name}: the store-id {id:?} is no http or https URL, and is passed over");
            people.say("a store-id that is no URL, and is passed over");
        }
    }
    Ok(())
}

/// The answer of a helper; `None` where it failed and the request goes on.
fn answer_of(
    facts: &Facts<'_>,
    scene: PeopleScene<'_>,
    (name, line): (&str, &[u8]),
    people: &mut ByPeople,
) -> Result<Option<Arc<Answer>>, Refused> {
    let (found, micros) = match facts.found().helper(name, line) {
        Some((found, micros)) => (found, Some(micros)),
        None => {
            let Some(pool) = scene.people.helpers.find(name) else {
                return Err(refuse(failed(&HelperTrouble::Gone), people));
            };
            match pool.remembered(line) {
                Some(answer) => (Ok(answer), None),
                None => {
                    let need = HelperNeed { name: name.to_owned(), pool, line: line.to_vec() };
                    return Err(Refused::Needs(Need::Helper(Box::new(need))));
                }
            }
        }
    };
    let kind = scene.people.helpers.find(name).map_or(Kind::ExternalAcl, |pool| pool.config().kind);
    let did = found.as_ref().map_or(HelperDid::Failed, |answer| HelperDid::Answered(answer.result));
    people.helpers.push(HelperNote { helper: name.into(), kind, did, micros, words: Box::default() });
    match found {
        Ok(answer) => Ok(Some(answer)),
        Err(trouble) => fails(scene, name, &trouble, people).map(|()| None),
    }
}

/// A helper has failed: the request goes on, or is denied.
fn fails(scene: PeopleScene<'_>, name: &str, trouble: &HelperTrouble, people: &mut ByPeople) -> Result<(), Refused> {
    let goes_on = scene.people.helpers.find(name).is_some_and(|pool| pool.config().on_failure == HelperFailure::Allow);
    let (did, end) = match goes_on {
        true => (HelperDid::PassedOver, "the request goes on without it (on_failure)"),
        false => (HelperDid::Failed, "the request is refused"),
    };
    if let Some(note) = people.helpers.last_mut() {
        note.did = did;
        note.say(&format!("{trouble}; {end}"));
    }
    if goes_on { Ok(()) } else { Err(refuse(failed(trouble), people)) }
}

fn failed(trouble: &HelperTrouble) -> Page {
    let what = "A rule of this cache could not be asked: its helper failed.";
    Page::new(503, trouble.as_str(), what, "Try again; the log of this cache says more to its administrator.")
        .with("Retry-After", "5")
}

/// The page has the user and the answers of helpers, for the log.
fn refuse(page: Page, people: &ByPeople) -> Refused {
    let user = people.user.as_ref().map(|user| Arc::clone(&user.name));
    let people = PagePeople { user, helpers: people.helpers.clone() };
    Refused::Page(Box::new(Page { people: Some(Box::new(people)), ..page }))
}

/// Calls with the target of the request; `None` where it has no URL.
fn with_target<T>(facts: &Facts<'_>, call: impl FnOnce(&Target<'_>) -> T) -> Option<T> {
    let url = facts.whole_url()?;
    let text = url.to_string();
    let (path, scheme, host) = (&*url.path, url.scheme.as_str(), url.host.as_str());
    Some(call(&Target { url: &text, path, scheme, host, port: url.port }))
}

fn rewrite_line(scene: PeopleScene<'_>, request: &RequestHead, target: &Target<'_>, user: Option<&User>) -> Vec<u8> {
    line::rewrite(&line::Rewrite {
        url: target.url,
        client: scene.client.ip().to_canonical(),
        user: user.map(|user| &*user.name),
        method: request.method.as_str(),
        listener: (scene.listener.ip(), scene.listener.port()),
    })
}

fn format_line(
    scene: PeopleScene<'_>,
    request: &RequestHead,
    (format, pool): (&Format, &Pool),
    target: &Target<'_>,
    user: Option<&User>,
) -> Vec<u8> {
    let field = |name: &str| {
        let values: Vec<&[u8]> = request.fields.get_all(name).collect();
        (!values.is_empty()).then(|| values.join(&b", "[..]))
    };
    let head = || {
        let mut out = Vec::new();
        for (name, value) in request.fields.iter() {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        out
    };
    format.line(&FormatFacts {
        user: user.map(|user| &*user.name),
        client: scene.client,
        host: target.host,
        port: target.port,
        url: target.url,
        path: target.path,
        scheme: target.scheme,
        method: request.method.as_str(),
        listener: (scene.listener.ip(), scene.listener.port()),
        field: &field,
        head: &head,
        name: &pool.config().name,
        arguments: &pool.config().arguments,
    })
}
