//! A workload and its plan in English.

use super::{Plan, PlannedPhase};
use crate::chart::{Unit, grouped, three_digits};
use crate::distribution::Distribution;
use crate::workload::{Content, Link, Pace, Popularity, WorkingSet, Workload};
use std::fmt::Write;

/// The robots, what they ask, how fast and of which origins, and what an ideal cache would do.
pub fn explain(workload: &Workload, plan: &Plan) -> String {
    let mut out = String::new();
    let variant = workload.variant.as_ref().map_or_else(String::new, |variant| format!(", variant {variant}"));
    let _ = writeln!(out, "{}{variant}: {}\n", workload.name, workload.about);
    for (title, lines) in [
        ("who asks", who(workload, plan)),
        ("what", what(workload, plan)),
        ("again", again(workload, plan)),
        ("origins", origins(workload, plan)),
        ("counts if", rules(workload)),
    ] {
        for (number, line) in lines.into_iter().enumerate() {
            let _ = writeln!(out, "{:<10} {line}", if number == 0 { title } else { "" });
        }
    }
    out.push('\n');
    out + &show(plan)
}

/// The plan as tables.
pub fn show(plan: &Plan) -> String {
    let mut out = String::from("phase        begins      lasts     rate            ends after\n");
    for phase in &plan.phases {
        out += &line(phase);
    }
    out.push('\n');
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "{name:<34} {value}");
        }
    };
    fact("robots, visible servers", Some(format!("{}, {}", grouped(plan.robots as f64), grouped(plan.servers as f64))));
    fact("requests in all", plan.requests.map(|count| grouped(count.round())));
    fact(
        "objects asked for",
        plan.objects.zip(plan.object_bytes).map(|(count, size)| format!("{}, {}", grouped(count.round()), bytes(size))),
    );
    fact("mean size; cachable", Some(format!("{}; {}", bytes(plan.size_mean), share(plan.cachable))));
    fact(
        "working set",
        plan.working_set.map(|set| {
            let (all, kept) = (grouped(set.objects.round()), grouped(set.cachable_objects.round()));
            format!("{all} objects, of them {kept} cachable with {}", bytes(set.cachable_bytes))
        }),
    );
    fact("an object lives in it for", plan.working_set.and_then(|set| set.life_s).map(time));
    let (dhr, bhr) = (plan.dhr.map(share), plan.bhr.map(share));
    fact(
        "ideal hit ratio, by replies, bytes",
        dhr.zip(bhr).map(|(dhr, bhr)| format!("{dhr}, {bhr} ({})", plan.how.as_words())),
    );
    fact("mean response of an ideal cache", plan.response_s.filter(|_| plan.miss_s.1 > 0.0).map(between));
    fact("mean response without a cache", Some(between(plan.miss_s)).filter(|_| plan.miss_s.1 > 0.0));
    fact(
        "new and cachable",
        plan.fill.map(|fill| {
            let rate =
                plan.fill_bytes_per_s.map_or_else(String::new, |rate| format!(", {} per second at peak", bytes(rate)));
            format!("{} of the requests{rate}", share(fill))
        }),
    );
    fact(
        "cache for 99 % of the hits, LRU",
        plan.lru_99_bytes.map(|size| format!("{} ({})", bytes(size), plan.how.as_words())),
    );
    fact(
        "cache for all hits, ideal",
        plan.working_set.filter(|_| plan.dhr.is_some()).map(|set| bytes(set.cachable_bytes)),
    );
    out
}

fn line(phase: &PlannedPhase) -> String {
    let begins = phase.begins.map_or_else(|| "–".to_owned(), |at| Unit::Elapsed.text(at.as_secs_f64()));
    let lasts = phase.length.map_or_else(|| "–".to_owned(), |length| time(length.as_secs_f64()));
    let rate = match phase.rates {
        Some((from, to)) if from == to => format!("{}/s", three_digits(from)),
        Some((from, to)) => format!("{} to {}/s", three_digits(from), three_digits(to)),
        None => "as replies come".to_owned(),
    };
    let quiet = if phase.logged {
        ""
    } else if phase.goal.is_empty() {
        "(not logged)"
    } else {
        " (not logged)"
    };
    let line = format!("{:<12} {begins:<11} {lasts:<9} {rate:<15} {}{quiet}", phase.name, phase.goal);
    format!("{}\n", line.trim_end())
}

fn who(workload: &Workload, plan: &Plan) -> Vec<String> {
    let robots = &workload.robots;
    let count = grouped(plan.robots as f64);
    let pace = match robots.pace {
        Pace::Poisson { rate_per_s } => {
            format!("{rate_per_s} requests a second each at random times, whatever the replies do")
        }
        Pace::Constant { rate_per_s } => {
            format!("{rate_per_s} requests a second each at even times, whatever the replies do")
        }
        Pace::Closed { pause } if pause.mean() == 0.0 => "each asks again as soon as it has a reply".to_owned(),
        Pace::Closed { pause } => {
            format!("each asks again after a reply and a pause of {} on average", time(pause.mean()))
        }
    };
    let all = plan.peak_per_s.map_or_else(String::new, |peak| format!(": {}/s at peak", three_digits(peak)));
    let uses = robots.connection_uses.mean();
    let limit = match robots.connections_max {
        0 => "any number of connections".to_owned(),
        1 => "one connection".to_owned(),
        many => format!("at most {many} connections"),
    };
    let kept = match uses {
        1.0 => "each for one request".to_owned(),
        uses if uses >= 1e6 => "kept for the whole run".to_owned(),
        uses => format!("each for {} requests on average", three_digits(uses)),
    };
    let tls = if robots.speaks_tls() { " over TLS" } else { "" };
    let mut lines = vec![
        format!("{count} robots; {pace}{all}"),
        format!("{}{tls}, {limit} per robot, {kept}", robots.protocol.as_str().to_uppercase()),
    ];
    if robots.protocol.is_http2() {
        lines.push(format!(
            "HTTP/2: one connection to a host at a time, at most {} requests at once on it, windows of {} a stream and {} a connection",
            robots.streams_max,
            bytes(robots.stream_window_bytes as f64),
            bytes(robots.connection_window_bytes as f64)
        ));
    }
    lines.extend(link(&workload.client_link).map(|link| format!("between robots and cache: {link}")));
    if robots.proxy_login {
        lines.push("each robot logs in at the proxy as a user of its own".to_owned());
    }
    if robots.abort > 0.0 {
        lines.push(format!("{} of the replies are not read to the end", share(robots.abort)));
    }
    lines
}

fn what(workload: &Workload, plan: &Plan) -> Vec<String> {
    let shares = workload.real_shares();
    let mut lines: Vec<String> =
        workload.contents.iter().zip(&shares).map(|(content, real)| of_content(workload, content, *real)).collect();
    let requests = &workload.requests;
    let kinds = [
        (requests.ims_200, "ask whether it changed, and it did"),
        (requests.ims_304, "ask whether it changed, and it did not"),
        (requests.if_none_match, "ask by tag whether it changed"),
        (requests.reload, "are reloads, which must reach the origin"),
        (requests.range, "ask for a part"),
        (requests.post, "are POST"),
        (requests.put, "are PUT"),
        (requests.head, "are HEAD"),
        (requests.logged_in, "come from users who are logged in and must not be answered from the store"),
    ];
    let said = kinds.iter().filter(|(part, _)| *part > 0.0).map(|(part, what)| format!("{} {what}", share(*part)));
    lines.extend(said);
    lines.push(format!(
        "in all {} a reply, {} of the requests for what a store may keep",
        bytes(plan.size_mean),
        share(plan.cachable)
    ));
    lines
}

fn of_content(workload: &Workload, content: &Content, real: f64) -> String {
    let embeds = content.embeds.as_ref().map_or_else(String::new, |embeds| {
        let names = embeds.contents.iter().map(|(of, _)| workload.contents[usize::from(*of)].name.as_str());
        format!(", with {} of {} in it", three_digits(embeds.count.mean()), names.collect::<Vec<_>>().join(", "))
    });
    let changes = match content.life.cycle {
        None => "never changes".to_owned(),
        Some(Distribution::Constant(length)) => format!("changes each {}", time(length)),
        Some(length) => format!("changes after {} on average", time(length.mean())),
    };
    let refused = match (content.refused.status, content.refused.robots) {
        (0, _) => String::new(),
        (status, 1.0..) => format!(", which the cache must refuse with {status}"),
        (status, robots) => format!(", which the cache must refuse with {status} to {} of the robots", share(robots)),
    };
    let (size, kept) = (bytes(content.size_mean()), share(content.cachable));
    format!("{:<6} {}: {size} on average, {kept} cachable, {changes}{embeds}{refused}", share(real), content.name)
}

fn again(workload: &Workload, plan: &Plan) -> Vec<String> {
    let interest = &workload.interest;
    let chosen = match interest.popularity {
        Popularity::Uniform => "all alike".to_owned(),
        Popularity::Recent { .. } => "newer ones more often".to_owned(),
        Popularity::Zipf { alpha, .. } => format!("by a rank: the n-th with weight n^-{alpha}"),
        Popularity::Sequence => "one after the other".to_owned(),
        Popularity::Tree { fan } => format!("along the links of pages, {fan} on each, breadth first"),
        Popularity::Live { segment_s, .. } => format!("what is live, in segments of {}", time(segment_s)),
    };
    let set = match interest.working_set {
        WorkingSet::Unlimited => "everything asked for before".to_owned(),
        WorkingSet::FreezeAt(at) => {
            format!(
                "what was asked for in the first {}; then each new object pushes the oldest out",
                time(at.as_secs_f64())
            )
        }
        WorkingSet::CapPerRate(_) | WorkingSet::Cap(_) => match plan.working_set {
            Some(set) => {
                format!("the newest {} objects; each new one pushes the oldest out", grouped(set.objects.round()))
            }
            None => "a number of newest objects".to_owned(),
        },
        WorkingSet::Fixed(count) => format!("{} objects, all there from the start", grouped(count as f64)),
    };
    let mut lines = match interest.working_set {
        WorkingSet::Fixed(_) => vec![format!("all requests are for {set}, chosen {chosen}")],
        _ => vec![format!("{} of the requests are for {set}, chosen {chosen}", share(interest.recurrence))],
    };
    if interest.public < 1.0 {
        lines.push(format!("{} of the interest is each robot's own", share(1.0 - interest.public)));
    }
    if interest.hot_probability > 0.0 {
        let set = if interest.hot_set > 0.0 {
            format!("{} of them", share(interest.hot_set))
        } else {
            "one of them".to_owned()
        };
        lines.push(format!("{} of the repeats are for a hot set of {set}", share(interest.hot_probability)));
    }
    if interest.bhr_discrimination > 0.0 {
        lines.push("popular objects are small, so fewer bytes are hit than replies".to_owned());
    }
    lines
}

fn origins(workload: &Workload, plan: &Plan) -> Vec<String> {
    let servers = &workload.servers;
    let think = match servers.think.mean() {
        0.0 => "answer at once".to_owned(),
        mean => format!("think for {} on average", time(mean)),
    };
    let mut lines = vec![format!("{} visible servers; they {think}", grouped(plan.servers as f64))];
    lines.extend(link(&workload.server_link).map(|link| format!("between cache and origins: {link}")));
    let faults = &servers.faults;
    let wrong = faults.truncate + faults.stall + faults.reset + faults.wrong_length + faults.errors;
    if wrong > 0.0 {
        lines.push(format!("{} of the replies go wrong at the origin", share(wrong)));
    }
    lines
}

fn rules(workload: &Workload) -> Vec<String> {
    let rules = &workload.rules;
    let mut lines = vec![format!("at most {} of the replies are errors", share(rules.errors_max))];
    lines.extend(rules.dhr_min.map(|dhr| format!("at least {} of the replies are hits", share(dhr))));
    if let Some(phase) = super::reported(workload) {
        lines.push(format!("the result is that of phase {}", phase.name));
    }
    lines
}

fn link(link: &Link) -> Option<String> {
    if *link == Link::default() {
        return None;
    }
    let mut parts = vec![format!("{} each way", time(link.delay.as_secs_f64()))];
    if !link.jitter.is_zero() {
        parts.push(format!("up to {} more", time(link.jitter.as_secs_f64())));
    }
    if link.bits_per_s > 0 {
        parts.push(format!("{} a connection", Unit::Bits.text(link.bits_per_s as f64)));
    }
    if link.loss > 0.0 {
        parts.push(format!("{} of the packets lost", share(link.loss)));
    }
    Some(parts.join(", "))
}

fn share(share: f64) -> String {
    Unit::Share.text(share)
}

/// Bytes for people.
pub(super) fn bytes(bytes: f64) -> String {
    Unit::Bytes.text(bytes)
}

/// Seconds for people.
pub(super) fn time(seconds: f64) -> String {
    let steps = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")];
    match steps.iter().find(|(step, _)| seconds >= 2.0 * step || (seconds >= *step && seconds % step == 0.0)) {
        Some((step, unit)) => format!("{} {unit}", three_digits(seconds / step)),
        None => Unit::Micros.text(seconds * 1e6),
    }
}

fn between((kept, fresh): (f64, f64)) -> String {
    match kept == fresh {
        true => time(kept),
        false => format!("{} to {}, with kept and with new connections to the origins", time(kept), time(fresh)),
    }
}
