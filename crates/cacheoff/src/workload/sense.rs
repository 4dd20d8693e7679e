//! Workloads that make no sense although each of their values is allowed.

use super::{Pace, Popularity, WorkingSet, Workload};

/// Types have a byte in object names.
const CONTENTS_MAX: usize = 255;
const PHASES_MAX: usize = 1_000;

/// Something that makes no sense, and the knobs it is about, the most telling first.
pub(super) struct Trouble {
    pub(super) knobs: Vec<String>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

fn trouble(knob: &str, message: String, hint: &str) -> Trouble {
    Trouble { knobs: vec![knob.to_owned()], message, hint: Some(hint.to_owned()) }
}

/// All checks of a workload that make sense only together.
pub(super) fn troubles(workload: &Workload) -> Vec<Trouble> {
    let mut found = Vec::new();
    if workload.replay.is_none() {
        contents(workload, &mut found);
    }
    phases(workload, &mut found);
    shares(workload, &mut found);
    interest(workload, &mut found);
    found
}

fn contents(workload: &Workload, found: &mut Vec<Trouble>) {
    let contents = &workload.contents;
    if contents.is_empty() || contents.len() > CONTENTS_MAX {
        found.push(trouble("name", format!("there are {} contents", contents.len()), "write 1 to 255 [[content]]"));
        return;
    }
    for (number, content) in contents.iter().enumerate() {
        let at = format!("content.{}", content.name);
        if contents[..number].iter().any(|other| other.name == content.name) {
            found.push(trouble(&at, format!("two contents are called {:?}", content.name), "give each its own name"));
        }
        if content.embeds.as_ref().is_some_and(|embeds| embeds.contents.iter().any(|(of, _)| has_embeds(workload, *of)))
        {
            let message = format!("{at}: what is embedded embeds something itself");
            found.push(trouble(&format!("{at}.embeds_of"), message, "only pages may embed, and no pages"));
        }
    }
    for content in contents.iter().filter(|content| content.refused.status != 0 && content.cachable > 0.0) {
        let message = format!("content.{}: a store would keep what the cache refuses", content.name);
        found.push(trouble(&format!("content.{}.cachable", content.name), message, "write cachable = \"0%\""));
    }
    let declared: f64 = contents.iter().map(|content| content.share).sum();
    let first = format!("content.{}.share", contents[0].name);
    sum_is_one(declared, &first, "the shares of the contents", found);
    if contents.iter().all(|content| content.direct.is_some()) {
        let direct: f64 = contents.iter().filter_map(|content| content.direct).sum();
        sum_is_one(direct, &format!("content.{}.direct", contents[0].name), "the direct shares of the contents", found);
    }
    for content in contents.iter().filter(|content| !content.endings.is_empty()) {
        let sum: f64 = content.endings.iter().map(|(_, share)| share).sum();
        sum_is_one(sum, &format!("content.{}.endings", content.name), "the shares of the endings", found);
    }
}

fn has_embeds(workload: &Workload, number: u8) -> bool {
    workload.contents.get(usize::from(number)).is_some_and(|content| content.embeds.is_some())
}

/// Published shares are rounded, so a hundredth of a percent is forgiven.
fn sum_is_one(sum: f64, knob: &str, what: &str, found: &mut Vec<Trouble>) {
    if (sum - 1.0).abs() > 2e-4 {
        found.push(trouble(knob, format!("{what} add up to {:.2} %", sum * 100.0), "they must add up to 100 %"));
    }
}

fn phases(workload: &Workload, found: &mut Vec<Trouble>) {
    let phases = &workload.phases;
    if phases.is_empty() || phases.len() > PHASES_MAX {
        found.push(trouble("name", format!("there are {} phases", phases.len()), "write 1 to 1,000 [[phase]]"));
    }
    for (number, phase) in phases.iter().enumerate() {
        let at = format!("phase.{}", phase.name);
        let goals = [phase.length.is_some(), phase.replies.is_some(), phase.fill_bytes.is_some()];
        if !goals.contains(&true) && phase.fill_caches.is_none() && !phase.until_frozen {
            found.push(trouble(&at, format!("{at} never ends"), "give it length, replies, fill, or fill_caches"));
        }
        if phases[..number].iter().any(|other| other.name == phase.name) {
            found.push(trouble(&at, format!("two phases are called {:?}", phase.name), "give each its own name"));
        }
    }
    if let Some(phase) = phases.iter().find(|phase| phase.thermostat.is_some())
        && !matches!(workload.robots.pace, Pace::Poisson { .. })
    {
        let at = format!("phase.{}.thermostat", phase.name);
        let message = "a thermostat needs a rate that can be raised".to_owned();
        found.push(trouble(&at, message, "write robot.pace = \"poisson(RATE)\""));
    }
    let report = &workload.rules.report_phase;
    if !report.is_empty() && !phases.iter().any(|phase| phase.name == *report && phase.logged) {
        let message = format!("rules.report_phase: there is no logged phase {report:?}");
        found.push(trouble("rules.report_phase", message, "name one of the phases"));
    }
    if !phases.is_empty() && !phases.iter().any(|phase| phase.logged) {
        found.push(trouble("name", "no phase is logged".to_owned(), "write logged = true in one of them"));
    }
}

fn shares(workload: &Workload, found: &mut Vec<Trouble>) {
    let requests = &workload.requests;
    let types = [requests.ims_200, requests.ims_304, requests.if_none_match, requests.reload, requests.range]
        .iter()
        .sum::<f64>();
    if types > 1.0 + 1e-9 {
        let knobs = ["ims_200", "ims_304", "if_none_match", "reload", "range"].map(|knob| format!("requests.{knob}"));
        let message = format!("the types of requests add up to {:.1} %", types * 100.0);
        found.push(Trouble { knobs: knobs.into(), message, hint: Some("what is left is basic".to_owned()) });
    }
    if requests.post + requests.put + requests.head > 1.0 {
        found.push(trouble(
            "requests.post",
            "POST, PUT and HEAD are more than all requests".to_owned(),
            "what is left is GET",
        ));
    }
    let faults = &workload.servers.faults;
    let all = faults.truncate + faults.stall + faults.reset + faults.wrong_length + faults.errors;
    if all > 1.0 {
        found.push(trouble(
            "fault.truncate",
            format!("faults add up to {:.0} %", all * 100.0),
            "at most 100 % go wrong",
        ));
    }
    if workload.robots.connections_max == 1 && workload.requests.parallel_ranges.quantile(1.0) > 1.0 {
        let message = "parallel ranges need more than one connection".to_owned();
        found.push(trouble("robot.connections_max", message, "raise robot.connections_max"));
    }
}

fn interest(workload: &Workload, found: &mut Vec<Trouble>) {
    let interest = &workload.interest;
    if interest.hot_probability > 0.0
        && interest.hot_set == 0.0
        && !matches!(interest.working_set, WorkingSet::Fixed(_))
    {
        let hint = "give interest.hot_set the share of the working set that is hot";
        found.push(trouble("interest.hot_probability", "there is no hot set".to_owned(), hint));
    }
    let of_fixed = !matches!(interest.popularity, Popularity::Uniform | Popularity::Recent { .. });
    if of_fixed && !matches!(interest.working_set, WorkingSet::Fixed(_)) && workload.replay.is_none() {
        let message = "this popularity needs a fixed working set".to_owned();
        found.push(trouble("interest.popularity", message, "write working_set = \"fixed(COUNT)\""));
    }
    let lowest = workload.phases.iter().map(|phase| phase.recurrence.from.min(phase.recurrence.to)).fold(1.0, f64::min);
    let some_are_new = interest.recurrence > 0.0 && interest.recurrence * lowest < 1.0;
    if matches!(interest.working_set, WorkingSet::Fixed(_)) && some_are_new {
        let message = "of a fixed working set nothing is new, but recurrence is below 100 %".to_owned();
        found.push(trouble("interest.recurrence", message, "write recurrence = \"100%\", or another working set"));
    }
    let open = workload.robots.pace.rate_per_s().is_some();
    if open && matches!(interest.popularity, Popularity::Tree { .. }) {
        let message = "a tree is walked by robots that wait for their replies".to_owned();
        found.push(trouble("interest.popularity", message, "write pace = \"best-effort\" or \"closed(PAUSE)\""));
    }
    let factor = workload.phases.iter().map(|phase| phase.recurrence.from.max(phase.recurrence.to)).fold(0.0, f64::max);
    if interest.recurrence * factor > 1.0 + 1e-9 {
        let message = format!("recurrence reaches {:.1} % in a phase", interest.recurrence * factor * 100.0);
        found.push(trouble("interest.recurrence", message, "keep recurrence times its factor at or below 100 %"));
    }
}
