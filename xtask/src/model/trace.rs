//! A conversation that went wrong, made as short as it goes wrong still, and written down.

use super::date::Spelling;
use super::judge::{self, Finding};
use super::origin::{Exchange, Stage};
use super::play::{Got, Ground, Seen};
use super::script::{Case, Framing, Moment, Ranges, Step, TagKind};
use crate::shell::Trouble;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// All findings of a conversation that was played, by step; `alone` says that one client played it.
pub fn findings(stage: &Stage, seen: &[Seen], alone: bool) -> Vec<(usize, Finding)> {
    let exchanges = stage.exchanges();
    let mut all = Vec::new();
    for (at, now) in seen.iter().enumerate() {
        let known: Vec<Exchange> = exchanges.iter().filter(|exchange| exchange.at <= now.ended).cloned().collect();
        let case = judge::Case {
            exchanges: &known,
            seen: if alone { &seen[..=at] } else { seen },
            now,
            at_site: stage.case.way != super::script::Way::Forward,
            nonce: stage.nonce,
            alone,
        };
        all.extend(judge::judge(&case).into_iter().map(|finding| (at, finding)));
    }
    all
}

/// How often a conversation is played to see whether a finding comes again.
const TRIES: u32 = 2;

/// How long a conversation is made shorter.
const SHRINK_WITHIN: Duration = Duration::from_secs(20);

/// The same conversation with as little as shows the finding; `None` where it does not come again.
pub fn shrink(ground: &Ground, case: &Case, finding: &Finding) -> Result<Option<Case>, Trouble> {
    let began = Instant::now();
    if !shows(ground, case, finding)? {
        return Ok(None);
    }
    let mut short = case.clone();
    let mut at = short.steps.len();
    while at > 0 && began.elapsed() < SHRINK_WITHIN {
        at -= 1;
        let mut other = short.clone();
        let gone = other.steps.remove(at);
        // The remaining steps keep their versions.
        if gone.turn.changes
            && let Some(next) = other.steps.get_mut(at)
        {
            next.turn.changes = true;
        }
        if shows(ground, &other, finding)? {
            short = other;
        }
    }
    for at in 0..short.steps.len() {
        for simpler in simpler_steps(&short.steps[at]) {
            let mut other = short.clone();
            simpler(&mut other.steps[at]);
            let is_other = format!("{:?}", other.steps[at]) != format!("{:?}", short.steps[at]);
            if is_other && began.elapsed() < SHRINK_WITHIN && shows(ground, &other, finding)? {
                short = other;
            }
        }
    }
    let mut other = short.clone();
    other.numbers_steps = false;
    if shows(ground, &other, finding)? {
        short = other;
    }
    Ok(Some(short))
}

fn shows(ground: &Ground, case: &Case, finding: &Finding) -> Result<bool, Trouble> {
    for _ in 0..TRIES {
        let (stage, seen) = ground.play(case)?;
        let is_it = |(_, other): &(usize, Finding)| (other.section, other.kind) == (finding.section, finding.kind);
        if findings(&stage, &seen, true).iter().any(is_it) {
            return Ok(true);
        }
    }
    Ok(false)
}

type Change = Box<dyn Fn(&mut Step)>;

/// Changes that make a step say less, to be tried one by one.
fn simpler_steps(step: &Step) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    for at in (0..step.ask.fields.len()).rev() {
        all.push(Box::new(move |step: &mut Step| {
            if at < step.ask.fields.len() {
                step.ask.fields.remove(at);
            }
        }));
    }
    all.push(Box::new(|step| step.pause_seconds = 0));
    all.push(Box::new(|step| step.turn.changes = false));
    all.push(Box::new(|step| step.turn.fault = None));
    all.push(Box::new(|step| step.turn.status = 200));
    all.push(Box::new(|step| step.turn.targeted = None));
    all.push(Box::new(|step| step.turn.expires = None));
    all.push(Box::new(|step| step.turn.date = Some(Moment { offset: 0, spelling: Spelling::Imf })));
    all.push(Box::new(|step| step.turn.age = None));
    all.push(Box::new(|step| step.turn.modified = None));
    all.push(Box::new(|step| step.turn.vary = None));
    all.push(Box::new(|step| step.turn.by_language = false));
    all.push(Box::new(|step| step.turn.by_user = false));
    all.push(Box::new(|step| step.turn.sets_cookie = false));
    all.push(Box::new(|step| step.turn.marks = 0));
    all.push(Box::new(|step| step.turn.has_hop = false));
    all.push(Box::new(|step| step.turn.numbers_control = false));
    all.push(Box::new(|step| step.turn.framing = Framing::Length));
    all.push(Box::new(|step| step.turn.ranges = Ranges::Exact));
    all.push(Box::new(|step| step.turn.sparse = false));
    all.push(Box::new(|step| step.turn.validates = true));
    all.push(Box::new(|step| step.turn.tag = TagKind::Strong));
    all.push(Box::new(|step| step.turn.control = vec!["max-age=60".to_owned()]));
    all.push(Box::new(|step| step.turn.control.clear()));
    all.push(Box::new(|step| step.ask.method = "GET"));
    all
}

/// Plays a conversation and writes down what was said, with what is wrong below each answer.
pub fn told(ground: &Ground, case: &Case) -> Result<String, Trouble> {
    let (stage, seen) = ground.play(case)?;
    Ok(written(&stage, &seen, &findings(&stage, &seen, true)))
}

/// The answers that several clients got at a step, and the requests whose answers stand in them.
pub fn around(stage: &Stage, seen: &[Seen], findings: &[(usize, Finding)], step: usize) -> String {
    let Some(found) = seen.iter().find(|one| one.step == step) else { return String::new() };
    let marks = match &found.got {
        Got::Whole(answer) => answer.fields.iter().filter_map(|(_, value)| judge::mark(value)).collect(),
        Got::Broken(_) => Vec::new(),
    };
    let exchanges = stage.exchanges();
    let sources = exchanges.iter().filter(|exchange| marks.contains(&exchange.serial)).map(|exchange| exchange.step);
    let mut steps: Vec<usize> = sources.chain([found.step]).collect();
    steps.extend(found.step.saturating_sub(STEPS_BEFORE)..found.step);
    let shown: Vec<Seen> = seen.iter().filter(|one| steps.contains(&one.step)).cloned().collect();
    written(stage, &shown, findings)
}

/// How many steps before a finding are shown of what several clients played.
const STEPS_BEFORE: usize = 4;

/// The text of a conversation that was played.
pub fn written(stage: &Stage, seen: &[Seen], findings: &[(usize, Finding)]) -> String {
    let mut text = format!("    {}; seed {}\n", stage.case.way.as_str(), stage.case.seed);
    let exchanges = stage.exchanges();
    for now in seen {
        let at = now.step;
        if let Some(pause) = stage.case.steps.get(at).map(|step| step.pause_seconds).filter(|pause| *pause > 0) {
            writeln!(text, "    ({pause} s pass)").ok();
        }
        writeln!(text, "    {at}. client: {}{}", now.method, fields_of(&now.ask.0)).ok();
        for exchange in exchanges.iter().filter(|exchange| exchange.step == at) {
            writeln!(text, "       origin was asked: {}{}", exchange.method, fields_of(&exchange.request.0)).ok();
            let fault = exchange.fault.map_or(String::new(), |fault| format!(" ({fault:?})"));
            let Exchange { status, range, .. } = exchange;
            let body = format!(" bytes {}..{} of {}", range.start, range.end, exchange.rep.length);
            writeln!(text, "       origin said:      {status}{fault}{}{body}", fields_of(&exchange.fields.0)).ok();
        }
        let answer = match &now.got {
            Got::Whole(answer) => {
                format!("{}{} bytes {}", answer.status, fields_of(&answer.fields), answer.body.len())
            }
            Got::Broken(how) => format!("broken off: {how}"),
        };
        writeln!(text, "       client got:       {answer}").ok();
        for (_, finding) in findings.iter().filter(|(step, _)| *step == at) {
            writeln!(text, "       ** {}: {} ({})", finding.section, finding.kind, finding.what).ok();
        }
    }
    text
}

/// Fields in one line; what says nothing here is left out.
fn fields_of(fields: &[(String, String)]) -> String {
    const LEFT_OUT: [&str; 8] = [
        "host",
        "via",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "server",
        "accept-ranges",
        "forwarded",
    ];
    let shown = fields.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
    shown.fold(String::new(), |text, (name, value)| text + " | " + name + ": " + value)
}
