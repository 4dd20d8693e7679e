//! Hooks that would be asked about a request that might come. None is: what they would do is not known, and explanations say so.

use super::Step;
use super::decision::Decision;
use super::text::Harmless;
use crate::hook::{self, CallTrouble, Stage, place_words};
use crate::mount::{Asked, HookPlace, MountState, Mounts};
use crate::page::Page;
use crate::rules::{self, Ask, Scene};
use larder_wire::{Host, RequestHead};

/// The hooks whose filters let the request through; they are asked for real requests alone. Where they can't be loaded, this is what a
/// client gets.
pub(super) fn hooks_of(
    ask: &Ask,
    request: &RequestHead,
    mounts: Option<&Mounts>,
    steps: &mut Vec<Decision>,
) -> Option<Page> {
    let hooked = ask.hooked_by.as_ref()?;
    let path = ask.url.path.split('?').next().unwrap_or_default();
    let read = hook::read_path(path);
    let about = (&ask.url.host, [Some(path), read.as_deref()]);
    name_hooks(&hooked.host, (&Stage::ALL, about), request, mounts, steps)
}

/// The hooks of the forward proxy whose filters let a CONNECT through.
pub(super) fn hooks_of_connect(
    host: &Host,
    connect: &RequestHead,
    (scene, mounts): (&Scene<'_>, Option<&Mounts>),
    steps: &mut Vec<Decision>,
) -> Option<Page> {
    let hooked_by = scene.config.forward.hooked_by.as_ref()?;
    name_hooks(hooked_by, (&[Stage::Request], (host, [None, None])), connect, mounts, steps)
}

fn name_hooks(
    hooked_by: &Host,
    (stages, (host, paths)): (&[Stage], (&Host, [Option<&str>; 2])),
    request: &RequestHead,
    mounts: Option<&Mounts>,
    steps: &mut Vec<Decision>,
) -> Option<Page> {
    let mount = mounts.and_then(|mounts| mounts.find(hooked_by));
    let hooks = mount.as_ref().and_then(|mount| mount.hooks());
    if let Some(text) = mount.as_ref().and_then(|mount| load_trouble(mount)) {
        steps.push(Decision::StoreRule { text });
    }
    let unasked = |stage: Stage, place: &HookPlace| Decision::Hook {
        stage: stage.as_str().to_owned(),
        hook: place.name.clone(),
        hook_script: place.script.clone(),
        hook_line: place.line,
        hook_micros: None,
        hook_remembered: false,
        did: None,
        asks_for: None,
    };
    let Some(hooks) = hooks else {
        let name = hooked_by.as_str().split('#').next().unwrap_or_default();
        let files = HookPlace { script: name.to_owned(), ..HookPlace::default() };
        steps.push(unasked(Stage::Request, &files));
        return mount.and_then(|mount| refusal(&mount));
    };
    let mut refused = None;
    for &stage in stages {
        let (method, fields) = (request.method.as_str(), &request.fields);
        let called = hooks.called_for(&Asked { stage, method, host, paths, fields, status: None });
        steps.extend(called.iter().filter_map(|hook| hooks.at(*hook)).map(|hook| unasked(stage, &hook.place)));
        if stage == Stage::Request && !called.is_empty() {
            refused = mount.as_ref().and_then(|mount| refusal(mount));
        }
    }
    refused
}

/// Why hooks, or their newest version, can't be loaded.
fn load_trouble(mount: &MountState) -> Option<String> {
    let (settings, failure) = (mount.mount(), mount.report().load_failure?);
    let (name, line) = (&settings.application.name, failure.in_one_line(&settings.python.folder));
    let goes_on = if mount.serves() { " as it is now, and the version before goes on" } else { "" };
    Some(format!("{name} can't be loaded{goes_on}: {line}"))
}

/// The answer to a request that needs hooks of which no process can be had.
fn refusal(mount: &MountState) -> Option<Page> {
    let trouble = CallTrouble::NotLoaded(mount.trouble().filter(|_| !mount.serves())?);
    (!rules::may_go_on(mount, &trouble)).then(|| rules::denied_by_hook(&trouble))
}

/// The headline and the decisions of a request, which say of themselves that they leave out hooks that would have changed them.
pub(super) fn without_hooks(says: String, steps: Vec<Decision>, status: Option<u16>) -> (String, Vec<Step>) {
    let mut unasked = Vec::new();
    for step in &steps {
        if let Decision::Hook { stage, hook, hook_script, hook_line, did: None, .. } = step {
            let place = place_words(hook, hook_script, *hook_line);
            unasked.push((stage.as_str(), Harmless(&place).to_string()));
        }
    }
    let of_stage = |wanted: Stage| unasked.iter().filter(move |(stage, _)| *stage == wanted.as_str());
    // A request that is refused because its hooks can't be loaded is refused.
    let changes_request = of_stage(Stage::Request).next().is_some() && status.is_none();
    let is_hit = says.starts_with("It would be answered from the store");
    let changes_hit = is_hit && of_stage(Stage::Found).next().is_some();
    let changed: &[&str] = match (changes_request, changes_hit) {
        (true, _) => &["key", "stored", "fresh", "absent", "followed", "origin", "kept", "answer"],
        (false, true) => &["answer"],
        (false, false) => return (says, steps.into_iter().map(Step::from).collect()),
    };
    let (asked_first, may) = match changes_request {
        true => (
            of_stage(Stage::Request),
            "A request is shown to them first, and they may ask for another URL, add to the key, or answer",
        ),
        false => {
            (of_stage(Stage::Found), "A stored response is shown to them first, and they may ask the origin, or answer")
        }
    };
    let names: Vec<&str> = asked_first.map(|(_, place)| place.as_str()).collect();
    let mut rest = says.chars();
    let first = rest.next().map_or(String::new(), |letter| letter.to_ascii_lowercase().to_string());
    let says = format!(
        "Without its hooks {first}{}\nIts hooks: {}. {may}; `larder explain NAME` says what they did to one that came.",
        rest.as_str(),
        names.join(", "),
    );
    let step = |decision| {
        let mut step = Step::from(decision);
        if changed.contains(&step.step.as_str()) {
            step.says = format!("without its hooks: {}", step.says);
        }
        step
    };
    (says, steps.into_iter().map(step).collect())
}
