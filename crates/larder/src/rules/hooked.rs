//! The work of a site's hooks on a request: which of them are called, and the request that their decision makes of it.

use super::by_hook::{ByHook, HookNeed, facts};
use super::facts::Facts;
use super::need::Need;
use super::pages::ambiguous;
use crate::config::Site;
use crate::config::python::OnFailure;
use crate::hook::{CallTrouble, ScriptAnswer, ScriptFailure};
use crate::mount::{Asked, MountState};
use crate::page::Page;
use larder_wire::Url;
use larder_wire::reading::Reading;
use std::sync::Arc;

/// The work of hooks on a request.
pub(super) enum Hooked {
    /// None is called, or they change nothing.
    GoesOn,
    /// They changed it; the URL is another one, where there is one.
    Changed(Box<ByHook>, Option<Url>),
    /// It is answered at once.
    Answered(Page),
}

/// Lets the hooks of a site work on a request that the rules allow.
pub(super) fn judge(facts_read: &Facts<'_>, (number, site): (usize, &Site)) -> Result<Hooked, Need> {
    let Some(host) = &site.hooked_by else { return Ok(Hooked::GoesOn) };
    let Some((scene, request, url)) = facts_read.for_hooks() else { return Ok(Hooked::GoesOn) };
    // Where a configuration is asked without its server, hooks are not.
    let Some(mounts) = scene.mounts else { return Ok(Hooked::GoesOn) };
    // A rule that is gone (at a reload, for a moment) is not taken to permit.
    let Some(mount) = mounts.find(host) else { return Ok(denied(&CallTrouble::Busy)) };
    let need = |called| Need::Hooks(Box::new(HookNeed { mount: Arc::clone(&mount), called, url: url.clone() }));
    let answer = match (&scene.found.hook, mount.hooks()) {
        (Some(answer), _) => answer.clone(),
        (None, None) => return Err(need(None)),
        (None, Some(hooks)) => {
            let path = url.path.split('?').next().unwrap_or_default();
            let Reading::Path(read) = Reading::of(path) else {
                // A hook would see one path, and the origin maybe another one.
                return match hooks.has(false) {
                    true => Ok(Hooked::Answered(ambiguous())),
                    false => Ok(Hooked::GoesOn),
                };
            };
            let read = String::from_utf8_lossy(&read);
            let (method, fields) = (request.method.as_str(), &request.fields);
            let paths = [Some(path), Some(&*read)];
            let called = hooks.called_for(&Asked { method, host: &url.host, paths, fields, status: None });
            if called.is_empty() {
                return Ok(Hooked::GoesOn);
            }
            let remembered = scene.hook_lines.filter(|_| hooks.remember(&called).is_some());
            let known = remembered
                .and_then(|lines| lines.remembered(&hooks, &facts(request, url, scene.client, (&called, ""))));
            match known {
                Some(effects) => Ok(effects),
                None => return Err(need(Some((hooks, called.into())))),
            }
        }
    };
    let place_of = |hook: Option<u16>| {
        let hooks = mount.hooks();
        let place = hook.and_then(|hook| hooks.as_ref()?.at(hook).map(|hook| hook.place.clone()));
        place.unwrap_or_else(|| mount.mount().application.name.clone())
    };
    let effects = match answer {
        Ok(effects) if effects.is_nothing() => return Ok(Hooked::GoesOn),
        Ok(effects) => effects,
        Err(trouble) => return Ok(failed(&mount, &trouble)),
    };
    let place = place_of(effects.by.map(|(hook, _)| hook));
    if let Some(answer) = &effects.answer {
        return Ok(Hooked::Answered(page(answer, &place)));
    }
    let url = effects.url(url);
    if let Some(url) = &url {
        let is_of_site =
            matches!(scene.config.sites.find_by_every_reading(url), Ok(Some((found, _))) if found == number);
        if !is_of_site || !matches!(Reading::of(&url.path), Reading::Path(_)) {
            let what = format!("{place}: the path {} does not lie within the site by every reading of it", url.path);
            return Ok(failed(&mount, &CallTrouble::Failed(ScriptFailure { hook: None, what })));
        }
    }
    // Without a server nothing is stored, and without a secret nothing can be.
    let hash = |value: &[u8]| scene.credentials.and_then(|secret| secret.hash(value));
    let Some(key) = effects.key(hash) else {
        let what = "a field that a hook sets has no hash for its key: the store's secret can't be read".to_owned();
        return Ok(failed(&mount, &CallTrouble::Failed(ScriptFailure { hook: None, what })));
    };
    Ok(Hooked::Changed(Box::new(ByHook { effects, key: key.into(), place }), url))
}

/// A request whose hook failed.
fn failed(mount: &MountState, trouble: &CallTrouble) -> Hooked {
    let name = &mount.mount().application.name;
    match trouble {
        // The process has reported its traceback itself.
        CallTrouble::Failed(failure) if failure.what.starts_with("Traceback") => {}
        CallTrouble::Failed(failure) => tracing::error!("{name}: {}", failure.what),
        CallTrouble::NotLoaded(why) => tracing::debug!("{name} can't be loaded: {why}"),
        trouble => tracing::warn!("{name}: {}", trouble.as_str()),
    }
    if mount.mount().python.on_failure == OnFailure::Pass {
        return Hooked::GoesOn;
    }
    denied(trouble)
}

fn denied(trouble: &CallTrouble) -> Hooked {
    let what = "A rule of this site, which is a script, failed.";
    let remedy = "Tell the administrator: `larder scripts` and the log say why.";
    Hooked::Answered(Page::new(trouble.status(), trouble.as_str(), what, remedy))
}

/// The answer of a hook.
fn page(answer: &ScriptAnswer, place: &str) -> Page {
    Page::of_script(answer.status, answer.fields.clone(), answer.body.clone(), place.to_owned())
}
