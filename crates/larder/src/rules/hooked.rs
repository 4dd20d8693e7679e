//! The work of a site's hooks on a request: which of them are called, and the request that their decision makes of it.

use super::ask::Route;
use super::by_hook::{ByHook, HookNeed, HookReply, HookedBy};
use super::facts::{Facts, Scene};
use super::need::Need;
use super::pages::{ambiguous, ambiguous_cookie};
use crate::config::Site;
use crate::config::python::OnFailure;
use crate::hook::{
    self, CallFacts, CallTrouble, Decided, HookNote, RequestEffects, ScriptAnswer, ScriptFailure, Stage,
};
use crate::mount::{Asked, Hooks, MountState};
use crate::page::Page;
use larder_wire::reading::Reading;
use larder_wire::{Host, RequestHead, Url};
use std::rc::Rc;
use std::sync::Arc;

/// The work of hooks on a request.
pub(super) enum Hooked {
    /// It goes on.
    GoesOn(Box<GoesOn>),
    /// It is answered at once, by the hook of the note.
    Answered(Page, Option<HookNote>),
}

/// A request that goes on after the hooks of its site.
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

/// The request, its site and the hooks of that site.
struct Judged<'a> {
    scene: &'a Scene<'a>,
    request: &'a RequestHead,
    url: &'a Url,
    number: usize,
    site: &'a Site,
    host: &'a Host,
    mount: &'a Arc<MountState>,
}

/// Lets the hooks of a site work on a request that the rules allow.
pub(super) fn judge(facts_read: &Facts<'_>, (number, site, host): (usize, &Site, &Host)) -> Result<Hooked, Need> {
    let goes_on = || unasked(host);
    let Some((scene, request, url)) = facts_read.for_hooks() else { return Ok(goes_on()) };
    // Where a configuration is asked without its server, hooks are not.
    let Some(mounts) = scene.mounts else { return Ok(goes_on()) };
    // A rule that is gone (at a reload, for a moment) is not taken to permit.
    let Some(mount) = mounts.find(host) else { return Ok(Hooked::Answered(denied(&CallTrouble::Busy), None)) };
    let judged = Judged { scene: &scene, request, url, number, site, host, mount: &mount };
    let Some(hooks) = mount.hooks() else {
        return match &scene.found.hook {
            Some(reply) => Ok(judged.put_in_force(reply.clone(), HookedBy::new(host.clone()))),
            None => Err(judged.need(None)),
        };
    };
    let path = url.path.split('?').next().unwrap_or_default();
    let Some(read) = hook::read_path(path) else {
        // A hook would see one path, and the origin maybe another one.
        let judges_paths = [Stage::Request, Stage::Found, Stage::Respond].iter().any(|stage| hooks.has(*stage));
        return Ok(if judges_paths { Hooked::Answered(ambiguous(), None) } else { goes_on() });
    };
    let reply = match &scene.found.hook {
        Some(reply) => reply.clone(),
        None => {
            let called = hooks.called_for(&judged.asked(Stage::Request, [Some(path), Some(&read)]));
            if called.is_empty() {
                return Ok(GoesOn::unchanged(judged.hooked_by(&hooks, url)));
            }
            let facts = CallFacts::of(Stage::Request, (request, url, scene.client), (&called, ""));
            match scene.hook_lines.and_then(|lines| lines.remembered(&hooks, &facts)) {
                Some(decided) => Ok(decided),
                None => return Err(judged.need(Some((hooks, called.into())))),
            }
        }
    };
    let hooked_by = judged.hooked_by(&hooks, url);
    Ok(judged.put_in_force(reply, hooked_by))
}

/// A request that is allowed without a question to the hooks of its site.
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
    fn need(&self, called: Option<(Arc<Hooks>, Box<[u16]>)>) -> Need {
        Need::Hooks(Box::new(HookNeed { mount: Arc::clone(self.mount), called, url: self.url.clone() }))
    }

    fn asked<'b>(&self, stage: Stage, paths: [Option<&'b str>; 2]) -> Asked<'b>
    where
        'a: 'b,
    {
        let (method, fields) = (self.request.method.as_str(), &self.request.fields);
        Asked { stage, method, host: &self.url.host, paths, fields, status: None }
    }

    /// The stages at which hooks may be asked about the answer to a request for this URL. Fields that a hook has set or taken off
    /// count at the call itself.
    fn hooked_by(&self, hooks: &Hooks, url: &Url) -> HookedBy {
        let path = url.path.split('?').next().unwrap_or_default();
        let read = hook::read_path(path);
        let takes = |stage| hooks.takes(&self.asked(stage, [Some(path), read.as_deref()]));
        HookedBy { host: self.host.clone(), at_found: takes(Stage::Found), at_respond: takes(Stage::Respond) }
    }

    /// The request as the decision leaves it.
    fn put_in_force(&self, reply: HookReply, hooked_by: HookedBy) -> Hooked {
        let Decided { effects, note } = match reply {
            Ok(decided) => decided,
            Err((trouble, note)) => return self.failed(&trouble, note, hooked_by),
        };
        if effects.is_nothing() {
            return GoesOn::noting(hooked_by, Some(note));
        }
        if let Some(answer) = &effects.answer {
            return Hooked::Answered(page(answer, note.at()), Some(note));
        }
        match self.changed(&effects) {
            Ok((changed, url, route)) => {
                let has_changed_fields = !effects.set.is_empty() || !effects.remove.is_empty();
                let hooked_by = match (self.mount.hooks(), &url) {
                    // A filter may look at a field that they have changed.
                    (Some(hooks), _) if has_changed_fields => HookedBy {
                        at_found: hooks.has(Stage::Found),
                        at_respond: hooks.has(Stage::Respond),
                        ..hooked_by
                    },
                    (Some(hooks), Some(url)) => self.hooked_by(&hooks, url),
                    _ => hooked_by,
                };
                let note = match &url {
                    Some(url) => note.asks_for(&url.path),
                    None => note,
                };
                let changed = Some(Box::new(changed));
                Hooked::GoesOn(Box::new(GoesOn { changed, url, route, hooked_by, note: Some(note) }))
            }
            Err(failure) => {
                let trouble = CallTrouble::Failed(failure);
                if let Some(hooks) = self.mount.hooks() {
                    let facts = CallFacts::of(Stage::Request, (self.request, self.url, self.scene.client), (&[], ""));
                    hook::report(self.mount, (&hooks, &facts), &trouble);
                }
                let note = note.did(trouble.as_str());
                self.failed(&trouble, Some(note), hooked_by)
            }
        }
    }

    /// The changes of hooks, the URL and the route that take the place of the request's own; or why they can't be done.
    fn changed(&self, effects: &Rc<RequestEffects>) -> Result<(ByHook, Option<Url>, Option<Route>), ScriptFailure> {
        let failure = |by: Option<(u16, u32)>, what: String| ScriptFailure { by: by.or(effects.by), what };
        let url = effects.url(self.url);
        if let Some(url) = &url {
            let sites = &self.scene.config.sites;
            let is_of_site = matches!(sites.find_by_every_reading(url), Ok(Some((found, _))) if found == self.number);
            if !is_of_site || !matches!(Reading::of(&url.path), Reading::Path(_)) {
                let what = format!("the path {} does not lie within the site by every reading of it", url.path);
                return Err(failure(effects.path_by, what));
            }
        }
        let host_header = self.site.host_header;
        let route = match &effects.route {
            None => None,
            Some(name) => match self.site.routes.iter().find(|route| route.name == *name) {
                Some(route) => Some(Route::Site { origin: Arc::clone(&route.origin), host_header }),
                None => return Err(failure(effects.route_by, no_route(name, self.site))),
            },
        };
        // Without a server nothing is stored, and without a secret nothing can be.
        let hash = |value: &[u8]| self.scene.credentials.and_then(|secret| secret.hash(value));
        let key = effects.key(hash).ok_or_else(|| {
            failure(
                None,
                "a field that a hook sets has no hash for its key: the store's secret can't be read".to_owned(),
            )
        })?;
        let changed = ByHook {
            effects: Rc::clone(effects),
            key: key.into(),
            client_url: url.as_ref().map(|_| self.url.clone()),
            unrouted: route.as_ref().map(|_| Arc::clone(&self.site.origin)),
        };
        Ok((changed, url, route))
    }

    /// A request whose hook failed.
    fn failed(&self, trouble: &CallTrouble, note: Option<HookNote>, hooked_by: HookedBy) -> Hooked {
        match may_go_on(self.mount, trouble) {
            true => GoesOn::noting(hooked_by, note),
            false => Hooked::Answered(denied(trouble), note),
        }
    }
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
    let what = "A rule of this site, which is a script, failed.";
    let remedy = "Tell the administrator: `larder scripts` and the log say why.";
    Page::new(trouble.status(), trouble.as_str(), what, remedy)
}

/// The answer of a hook.
pub fn page(answer: &ScriptAnswer, place: String) -> Page {
    Page::of_script(answer.status, answer.fields.clone(), answer.body.clone(), place)
}
