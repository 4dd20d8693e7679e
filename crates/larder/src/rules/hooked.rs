//! The work of hooks on a request, those of its site or of the forward proxy: which of them are called, and the request that their
//! decision makes of it.

use super::ask::Route;
use super::by_hook::{ByHook, HookNeed, HookReply, HookedAnswer, HookedBy};
use super::facts::{Facts, Scene};
use super::need::Need;
use super::pages::{ambiguous, ambiguous_cookie, out_of_reach};
use crate::config::Site;
use crate::config::python::OnFailure;
use crate::hook::{
    self, CallFacts, CallTrouble, Decided, FailedCall, HookNote, HooksRead, RequestEffects, ScriptAnswer,
    ScriptFailure, Stage, Tries,
};
use crate::mount::{Asked, Hooks, MountState};
use crate::page::Page;
use crate::reach;
use crate::record::Rule;
use larder_cache::policy::may_be_credential;
use larder_wire::reading::Reading;
use larder_wire::{Host, RequestHead, Scheme, Url};
use std::rc::Rc;
use std::sync::Arc;
use tokio::time::Instant;

/// The work of hooks on a request.
pub(super) enum Hooked {
    /// It goes on.
    GoesOn(Box<GoesOn>),
    /// It is answered at once, by the hook of the note.
    Answered(Page, Option<HookNote>),
}

/// A request that goes on after its hooks.
pub(super) struct GoesOn {
    /// Their changes, where there are any.
    pub changed: Option<Box<ByHook>>,
    /// Another URL takes the place of the request's own.
    pub url: Option<Url>,
    /// Another route takes the place of the site's own.
    pub route: Option<Route>,
    /// The stages at which they are asked about the answer.
    pub hooked_by: HookedBy,
    /// A note of their work, where any was called.
    pub note: Option<HookNote>,
}

/// The hooks that a request meets.
#[derive(Clone, Copy)]
pub(super) struct HooksOf<'a> {
    /// The name of their processes.
    pub host: &'a Host,
    /// The site whose hooks they are, with its number; `None`: those of the forward proxy.
    pub site: Option<(usize, &'a Site)>,
    /// Fields that rules set.
    pub set_by_rules: &'a [(String, Vec<u8>)],
}

/// A request, and the hooks that it meets.
struct Judged<'a> {
    facts: &'a Facts<'a>,
    scene: &'a Scene<'a>,
    request: &'a RequestHead,
    url: &'a Url,
    of: HooksOf<'a>,
    mount: &'a Arc<MountState>,
    /// The version that its processes run; looked up once, so that filters and decision are of the same one.
    hooks: Option<Arc<Hooks>>,
}

/// Lets hooks work on a request that the rules allow.
pub(super) fn judge(facts_read: &Facts<'_>, of: HooksOf<'_>) -> Result<Hooked, Need> {
    let goes_on = || unasked(of.host);
    let Some((scene, request, url)) = facts_read.for_hooks() else { return Ok(goes_on()) };
    // Where a configuration is asked without its server, hooks are not.
    let Some(mounts) = scene.mounts else { return Ok(goes_on()) };
    // A rule that is gone (at a reload, for a moment) is not taken to permit.
    let Some(mount) = mounts.find(of.host) else { return Ok(Hooked::Answered(denied(&CallTrouble::Busy), None)) };
    let judged = Judged { facts: facts_read, scene: &scene, request, url, of, mount: &mount, hooks: mount.hooks() };
    let path = url.path.split('?').next().unwrap_or_default();
    let read = hook::read_path(path);
    if let Some(hooks) = &judged.hooks
        && read.is_none()
    {
        // A hook would see one path, and the origin maybe another one.
        let asked = |stage| judged.asked(stage, [None, None]);
        let judge_paths =
            [Stage::Request, Stage::Found, Stage::Respond].into_iter().any(|it| hooks.may_take(&asked(it)));
        return Ok(if judge_paths { Hooked::Answered(ambiguous(), None) } else { goes_on() });
    }
    let paths = [Some(path), hook::other_path(path, read.as_deref())];
    let reply = judged.reply(paths)?;
    let hooked_by = match &judged.hooks {
        Some(hooks) => judged.hooked_by(hooks, paths),
        None => HookedBy::new(of.host.clone()),
    };
    Ok(match reply {
        Some(reply) => judged.put_in_force(reply, hooked_by),
        None => {
            judged.holds_until(None);
            GoesOn::unchanged(hooked_by)
        }
    })
}

/// Lets hooks of the forward proxy work on a CONNECT that the rules allow. They can deny it, and nothing else: there is no URL to be
/// changed yet, and no response to be stored.
pub(super) fn judge_connect(
    facts_read: &Facts<'_>,
    of: HooksOf<'_>,
    (host, port): (&Host, u16),
) -> Result<HookedConnect, Need> {
    let (scene, request) = facts_read.for_hooks_of_connect();
    let Some(mounts) = scene.mounts else { return Ok(HookedConnect::GoesOn(None)) };
    let url = Url { scheme: Scheme::Https, host: host.clone(), port, path: "/".into() };
    let answered = |page: Page, note| {
        let (page, url) = (page.closing(), url.clone());
        HookedConnect::Answered(Box::new(HookedAnswer { page, url, rule: Rule::Forward, note }))
    };
    let Some(mount) = mounts.find(of.host) else { return Ok(answered(denied(&CallTrouble::Busy), None)) };
    let judged =
        Judged { facts: facts_read, scene: &scene, request, url: &url, of, mount: &mount, hooks: mount.hooks() };
    let failed = |trouble: &CallTrouble, note| match may_go_on(&mount, trouble) {
        true => HookedConnect::GoesOn(note),
        false => answered(denied(trouble), note),
    };
    // A tunnel has no path, so that no filter of paths lets it through.
    Ok(match judged.reply([None, None])? {
        None => HookedConnect::GoesOn(None),
        Some(Err(FailedCall { trouble, note })) => failed(&trouble, Some(*note)),
        Some(Ok(Decided { effects, note, .. })) => match &effects.answer {
            None => HookedConnect::GoesOn(Some(note.did("opens the tunnel"))),
            // For the client that would be an open tunnel.
            Some(answer) if answer.status < 300 => {
                let what = format!(
                    "{} opens a tunnel, with what follows as its bytes: answer a CONNECT by larder.deny(...)",
                    answer.status
                );
                let trouble = judged.report(ScriptFailure { by: effects.by, what });
                failed(&trouble, Some(note.did(&trouble.words())))
            }
            Some(answer) => answered(page(answer, note.at()), Some(note)),
        },
    })
}

/// The work of hooks on a CONNECT.
pub(super) enum HookedConnect {
    /// The tunnel is opened; with a note of their work, where any was called.
    GoesOn(Option<HookNote>),
    /// It is answered at once.
    Answered(Box<HookedAnswer>),
}

/// A request that is allowed without a question to its hooks.
pub(super) fn unasked(host: &Host) -> Hooked {
    GoesOn::unchanged(HookedBy::new(host.clone()))
}

impl GoesOn {
    fn unchanged(hooked_by: HookedBy) -> Hooked {
        GoesOn::noting(hooked_by, None)
    }

    fn noting(hooked_by: HookedBy, note: Option<HookNote>) -> Hooked {
        Hooked::GoesOn(Box::new(GoesOn { changed: None, url: None, route: None, hooked_by, note }))
    }
}

impl<'a> Judged<'a> {
    /// The decision of the `request` hooks whose filters let the request through; `None` where there are none. `Err`: they have to
    /// be asked.
    fn reply(&self, paths: [Option<&str>; 2]) -> Result<Option<HookReply>, Need> {
        let Some(hooks) = &self.hooks else {
            return self.scene.found.hook.clone().map(Some).ok_or_else(|| self.need(None));
        };
        if let Some(reply) = &self.scene.found.hook {
            return Ok(Some(reply.clone()));
        }
        let called = hooks.called_for(&self.asked(Stage::Request, paths));
        if called.is_empty() {
            return Ok(None);
        }
        let facts = CallFacts::of(Stage::Request, (self.request, self.url, self.scene.client), (&called, ""));
        match self.scene.hook_lines.and_then(|lines| lines.remembered(hooks, &facts)) {
            Some(decided) => Ok(Some(Ok(decided))),
            None => Err(self.need(Some((Arc::clone(hooks), called.into())))),
        }
    }

    fn need(&self, called: Option<(Arc<Hooks>, Box<[u16]>)>) -> Need {
        let (mount, url) = (Arc::clone(self.mount), self.url.clone());
        Need::Hooks(Box::new(HookNeed { mount, called, url, tries: Tries::default() }))
    }

    fn asked<'b>(&self, stage: Stage, paths: [Option<&'b str>; 2]) -> Asked<'b>
    where
        'a: 'b,
    {
        let (method, fields) = (self.request.method.as_str(), &self.request.fields);
        Asked { stage, method, host: &self.url.host, paths, fields, status: None }
    }

    /// The verdict holds for each request that is the same, while the decision is remembered; not, where hooks were asked about this
    /// one alone.
    fn holds_while(&self, remembered_until: Option<Instant>) {
        if remembered_until.is_some() {
            self.holds_until(remembered_until);
        }
    }

    /// The verdict holds for each request that is the same, until then, and for as long as the same version of the hooks runs.
    fn holds_until(&self, until: Option<Instant>) {
        if let Some(hooks) = &self.hooks {
            self.facts.note_hooks(HooksRead { mount: Arc::clone(self.mount), hooks: Arc::clone(hooks), until });
        }
    }

    /// The stages at which hooks may be asked about the answer to a request for this path. Fields that a hook has set or taken off
    /// count at the call itself.
    fn hooked_by(&self, hooks: &Hooks, paths: [Option<&str>; 2]) -> HookedBy {
        let takes = |stage| hooks.takes(&self.asked(stage, paths));
        HookedBy { host: self.of.host.clone(), at_found: takes(Stage::Found), at_respond: takes(Stage::Respond) }
    }

    /// The request as the decision leaves it.
    fn put_in_force(&self, reply: HookReply, hooked_by: HookedBy) -> Hooked {
        let Decided { effects, note, until } = match reply {
            Ok(decided) => decided,
            Err(FailedCall { trouble, note }) => return self.failed(&trouble, Some(*note), hooked_by),
        };
        if effects.is_nothing() {
            self.holds_while(until);
            return GoesOn::noting(hooked_by, Some(note));
        }
        if let Some(answer) = &effects.answer {
            return Hooked::Answered(page(answer, note.at()), Some(note));
        }
        match self.changed(&effects) {
            Ok((changed, url, route)) => {
                self.holds_while(until);
                let has_changed_fields = !changed.effects.set.is_empty() || !changed.effects.remove.is_empty();
                let hooked_by = match (&self.hooks, &url) {
                    // A filter may look at a field that they have changed.
                    (Some(hooks), _) if has_changed_fields => HookedBy {
                        at_found: hooks.has(Stage::Found),
                        at_respond: hooks.has(Stage::Respond),
                        ..hooked_by
                    },
                    (Some(hooks), Some(url)) => {
                        let path = url.path.split('?').next().unwrap_or_default();
                        let read = hook::read_path(path);
                        self.hooked_by(hooks, [Some(path), hook::other_path(path, read.as_deref())])
                    }
                    _ => hooked_by,
                };
                let note = match &url {
                    Some(url) if !is_of_one_origin(url, self.url) => note.asks_for(&url.to_string()),
                    Some(url) => note.asks_for(&url.path),
                    None => note,
                };
                let changed = Some(Box::new(changed));
                Hooked::GoesOn(Box::new(GoesOn { changed, url, route, hooked_by, note: Some(note) }))
            }
            Err(NotDone::Failed(failure)) => {
                let trouble = self.report(failure);
                let note = note.did(&trouble.words());
                self.failed(&trouble, Some(note), hooked_by)
            }
            // It is about the client, and no failure of the script: no client fills the list of failures.
            Err(NotDone::OutOfReach) => {
                Hooked::Answered(out_of_reach(), Some(note.did("leads where this client may not go")))
            }
        }
    }

    fn report(&self, failure: ScriptFailure) -> CallTrouble {
        let trouble = CallTrouble::Failed(failure);
        if let Some(hooks) = &self.hooks {
            let name = &self.scene.found.request;
            let facts = CallFacts::of(Stage::Request, (self.request, self.url, self.scene.client), (&[], name));
            hook::report(self.mount, (hooks, &facts), &trouble);
        }
        trouble
    }

    /// The changes of hooks, the URL and the route that take the place of the request's own; or why they can't be done.
    fn changed(&self, effects: &Rc<RequestEffects>) -> Result<(ByHook, Option<Url>, Option<Route>), NotDone> {
        let failed =
            |by: Option<(u16, u32)>, what: String| NotDone::Failed(ScriptFailure { by: by.or(effects.by), what });
        let url = effects.url(self.url);
        if let Some(url) = &url {
            match self.of.site {
                Some((number, _)) => self.check_url_of_site(number, effects, url)?,
                None => self.check_url_of_forward(effects, url)?,
            }
        }
        let route = match (&effects.route, self.of.site) {
            (None, _) => None,
            (Some(name), Some((_, site))) => match site.routes.iter().find(|route| route.name == *name) {
                Some(route) => {
                    let (origin, host_header) = (Arc::clone(&route.origin), site.host_header);
                    Some(Route::Site { origin, host_header, compression: site.compression() })
                }
                None => return Err(failed(effects.route_by, no_route(name, site))),
            },
            (Some(name), None) => {
                let what =
                    format!("there is no route {name:?}: the forward proxy has none; `req.host` chooses another host");
                return Err(failed(effects.route_by, what));
            }
        };
        let has_other_origin = url.as_ref().is_some_and(|url| !is_of_one_origin(url, self.url));
        let names = || {
            let set = self.of.set_by_rules.iter().map(|(name, _)| &**name);
            self.request.fields.iter().map(|(name, _)| name).chain(set)
        };
        let effects =
            if has_other_origin { Rc::new(without_credentials(effects, names())) } else { Rc::clone(effects) };
        // Without a server nothing is stored, and without a secret nothing can be.
        let hash = |value: &[u8]| self.scene.credentials.and_then(|secret| secret.hash(value));
        let key = effects.key(hash).ok_or_else(|| {
            failed(
                None,
                "a field that a hook sets has no hash for its key: the store's secret can't be read".to_owned(),
            )
        })?;
        let unrouted = route.as_ref().and(self.of.site).map(|(_, site)| Arc::clone(&site.origin));
        let client_url = url.as_ref().map(|_| self.url.clone());
        Ok((ByHook { effects, key: key.into(), client_url, unrouted }, url, route))
    }

    /// A request for a site stays one for that site by every reading of its path.
    fn check_url_of_site(&self, number: usize, effects: &RequestEffects, url: &Url) -> Result<(), NotDone> {
        if effects.origin.is_some() {
            let what = "the scheme, host and port of a request for a site stay as they are: `req.route` chooses another origin";
            return Err(NotDone::failed(effects.origin_by.or(effects.by), what));
        }
        let sites = &self.scene.config.sites;
        let is_of_site = matches!(sites.find_by_every_reading(url), Ok(Some((found, _))) if found == number);
        if !is_of_site || !matches!(Reading::of(&url.path), Reading::Path(_)) {
            let what = format!("the path {} does not lie within the site by every reading of it", url.path);
            return Err(NotDone::failed(effects.path_by.or(effects.by), what));
        }
        Ok(())
    }

    /// A request of the forward proxy goes nowhere that its client may not go, and to no origin in clear text where the client asked
    /// for TLS: inside an opened tunnel that is all that tells it whose bytes come.
    fn check_url_of_forward(&self, effects: &RequestEffects, url: &Url) -> Result<(), NotDone> {
        if effects.path.is_some() && !matches!(Reading::of(&url.path), Reading::Path(_)) {
            let what = format!("readers disagree about the path {}", url.path);
            return Err(NotDone::failed(effects.path_by.or(effects.by), what));
        }
        if (self.url.scheme, url.scheme) == (Scheme::Https, Scheme::Http) {
            let what = "a request for https can't become one for http: nothing would prove whose bytes come";
            return Err(NotDone::failed(effects.origin_by.or(effects.by), what));
        }
        let Scene { asker, config, own, .. } = *self.scene;
        match reach::refuses_form(asker, &config.access.destinations, own, &url.host, url.port) {
            true => Err(NotDone::OutOfReach),
            false => Ok(()),
        }
    }

    /// A request whose hook failed.
    fn failed(&self, trouble: &CallTrouble, note: Option<HookNote>, hooked_by: HookedBy) -> Hooked {
        match may_go_on(self.mount, trouble) {
            true => GoesOn::noting(hooked_by, note),
            false => Hooked::Answered(denied(trouble), note),
        }
    }
}

/// Why the decision of a hook can't be done.
enum NotDone {
    /// No server can do it.
    Failed(ScriptFailure),
    /// The client may not reach the host that the hook has chosen.
    OutOfReach,
}

impl NotDone {
    fn failed(by: Option<(u16, u32)>, what: impl Into<String>) -> NotDone {
        NotDone::Failed(ScriptFailure { by, what: what.into() })
    }
}

pub(super) fn is_of_one_origin(one: &Url, other: &Url) -> bool {
    (one.scheme, &one.host, one.port) == (other.scheme, &other.host, other.port)
}

/// A client meant its credentials for the origin that it asked for, and nobody knows the names of all: fields of a request go to another
/// origin where their names are known to be harmless, or where a hook or a rule has set them. A field that is not there is not taken off.
pub(super) fn without_credentials<'n>(
    effects: &RequestEffects,
    names: impl Iterator<Item = &'n str>,
) -> RequestEffects {
    let mut effects = effects.clone();
    for name in names.filter(|name| !goes_to_others(name)).map(str::to_ascii_lowercase) {
        if !effects.set.iter().any(|(set, _)| *set == name) && !effects.remove.contains(&name) {
            effects.remove.push(name);
        }
    }
    effects
}

/// Whether a field of this name may go to an origin that the client has not asked for. `Referer` tells where it was, by a URL that may
/// hold what only its own origin may know. Fields about the content and the handshake of a WebSocket say nothing of who asks.
fn goes_to_others(name: &str) -> bool {
    const OF_MESSAGE: [&str; 11] = [
        "content-digest",
        "content-disposition",
        "content-language",
        "content-location",
        "content-md5",
        "repr-digest",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-version",
        "trailer",
        "upgrade",
    ];
    let is_of_message = || OF_MESSAGE.iter().any(|known| name.eq_ignore_ascii_case(known));
    !name.eq_ignore_ascii_case("referer") && (!may_be_credential(name) || is_of_message())
}

fn no_route(name: &str, site: &Site) -> String {
    let known: Vec<&str> = site.routes.iter().map(|route| route.name.as_str()).collect();
    match known.is_empty() {
        true => format!("there is no route {name:?}: the site has no [[site.route]]"),
        false => format!("there is no route {name:?}: the site has {}", known.join(", ")),
    }
}

/// Whether a request goes on although its hook failed. One that readers disagree about is denied in any case.
pub fn may_go_on(mount: &MountState, trouble: &CallTrouble) -> bool {
    !trouble.is_of_client() && mount.mount().python.on_failure == OnFailure::Pass
}

/// The page for a request whose hook failed.
pub fn denied(trouble: &CallTrouble) -> Page {
    if let CallTrouble::Ambiguous(cookie) = trouble {
        return ambiguous_cookie(cookie);
    }
    let what = match trouble {
        CallTrouble::NotLoaded(_) => "The rules of this server, which are a script, can't be loaded.",
        _ => "A rule of this server, which is a script, failed.",
    };
    let remedy = "Tell the administrator: `larder scripts` and the log say why.";
    Page::new(trouble.status(), trouble.as_str(), what, remedy)
}

/// The answer of a hook.
pub fn page(answer: &ScriptAnswer, place: String) -> Page {
    Page::of_script(answer.status, answer.fields.clone(), answer.body.clone(), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_go_to_another_origin_are_known_to_be_harmless_or_set_by_a_hook() {
        let given = RequestEffects {
            set: vec![("x-api-key".into(), b"own".to_vec())],
            remove: vec!["accept".into(), "cookie".into()],
            ..RequestEffects::default()
        };
        let removed =
            |effects: &RequestEffects, names: &[&str]| without_credentials(effects, names.iter().copied()).remove;
        let all = ["Host", "Accept", "X-Api-Key", "Cookie", "PRIVATE-TOKEN", "Referer", "Origin", "private-token"];
        assert_eq!(removed(&given, &all), ["accept", "cookie", "private-token", "referer", "origin"]);
        let plain = ["Host", "User-Agent", "Range", "Content-Type", "Content-Language", "Upgrade", "Sec-WebSocket-Key"];
        assert_eq!(removed(&RequestEffects::default(), &plain), [""; 0], "a field that is not there is not taken off");
    }
}
