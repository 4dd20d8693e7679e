//! Reads a script: its sections, and the lines that belong to each. The meaning of a step is read in `steps`.
//! Indentation is the structure: sections stand at the margin, steps two spaces in, details of a step four.

use crate::failure::ScriptError;
use crate::lines::{Numbered, Wrong, duration, numbered};
use crate::script::{Act, Action, Part, Script, Step};
use crate::steps::{self, Side};
use crate::target::Way;
use std::path::Path;
use std::time::Duration;

/// A script that takes longer than this has failed, unless it says `limit`.
const LIMIT_DEFAULT: Duration = Duration::from_secs(10);

/// Clients of one `x N` act at most: each is two threads.
const CLIENTS_MAX: usize = 200;

impl Script {
    /// Reads a script from a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Script, ScriptError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(source) => script(&name, &source),
            Err(error) => Err(ScriptError { path: name, line: 0, what: format!("can't be read: {error}") }),
        }
    }

    /// Reads a script from a text; `path` is the name that failures show.
    pub fn parse(path: &str, source: &str) -> Result<Script, ScriptError> {
        script(path, source)
    }
}

/// Reads a whole script.
fn script(path: &str, source: &str) -> Result<Script, ScriptError> {
    read(path, source).map_err(|(line, what)| ScriptError { path: path.to_string(), line, what })
}

fn read(path: &str, source: &str) -> Result<Script, Wrong> {
    let lines = numbered(source)?;
    let names: Vec<String> =
        lines.iter().filter(|l| l.indent == 0).filter_map(|l| l.text.strip_prefix("origin ")).map(first_word).collect();
    let mut script = Script {
        path: path.to_string(),
        about: about(source),
        ways: vec![Way::Forward, Way::Reverse],
        needs: Vec::new(),
        config: None,
        limit: LIMIT_DEFAULT,
        origins: Vec::new(),
        acts: Vec::new(),
    };
    if script.about.is_empty() {
        return Err((1, "a script begins with a comment: `# what it shows (RFC and section)`".into()));
    }
    let mut rest = &lines[..];
    while let Some((head, tail)) = rest.split_first() {
        if head.indent != 0 {
            return Err((
                head.number,
                "this line belongs to no section: begin with `origin NAME` or `client NAME`".into(),
            ));
        }
        let end = tail.iter().position(|l| l.indent == 0).unwrap_or(tail.len());
        section(&mut script, *head, &tail[..end], &names)?;
        rest = &tail[end..];
    }
    finish(&script)?;
    Ok(script)
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or("").to_string()
}

fn about(source: &str) -> String {
    let comment = source.lines().take_while(|l| l.starts_with('#')).map(|l| l.trim_start_matches('#').trim());
    comment.collect::<Vec<_>>().join("\n").trim().to_string()
}

fn section(script: &mut Script, head: Numbered, body: &[Numbered], names: &[String]) -> Result<(), Wrong> {
    let words: Vec<&str> = head.text.split_whitespace().collect();
    let wrong = |what: &str| Err((head.number, what.to_string()));
    match words[..] {
        ["via", way] => match way {
            "both" => script.ways = vec![Way::Forward, Way::Reverse],
            "forward" => script.ways = vec![Way::Forward],
            "reverse" => script.ways = vec![Way::Reverse],
            _ => return wrong("`via` is `forward`, `reverse` or `both`"),
        },
        ["needs", ..] => script.needs.extend(words[1..].iter().map(|w| w.to_string())),
        ["limit", time] => script.limit = duration(time).map_err(|e| (head.number, e))?,
        ["config"] => script.config = Some(config(body)?),
        ["origin", name] => {
            let steps = steps::read(body, Side::Origin, names)?;
            match script.origins.iter_mut().find(|o| o.name == name) {
                Some(part) => part.steps.extend(steps),
                None => script.origins.push(Part { name: name_of(name, head.number)?, steps }),
            }
        }
        ["client", ..] => script.acts.push(client(head, body, names)?),
        ["wait", name] => script.acts.push(Act::Wait { name: name.to_string() }),
        _ => return wrong("unknown section: there are via, needs, limit, config, origin NAME, client NAME, wait NAME"),
    }
    let takes_body = matches!(words[0], "config" | "origin" | "client");
    match body.first() {
        Some(line) if !takes_body => Err((line.number, format!("`{}` has no lines of its own", words[0]))),
        _ => Ok(()),
    }
}

fn name_of(name: &str, line: usize) -> Result<String, Wrong> {
    let reserved = ["site", "root", "date", "rfc850", "asctime", "fill", "i"].contains(&name);
    let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if reserved || !is_plain {
        return Err((
            line,
            format!("`{name}` can't be a name: use lower-case letters and digits, and no variable's name"),
        ));
    }
    Ok(name.to_string())
}

fn client(head: Numbered, body: &[Numbered], names: &[String]) -> Result<Act, Wrong> {
    let mut words = head.text.split_whitespace().skip(1);
    let name = name_of(words.next().unwrap_or(""), head.number)?;
    if names.is_empty() {
        return Err((head.number, "a script needs at least one origin: begin with `origin s1`".into()));
    }
    let (mut count, mut background) = (1, false);
    while let Some(word) = words.next() {
        match word {
            "background" => background = true,
            "x" => {
                let number = words.next().and_then(|w| w.parse().ok()).filter(|n| (1..=CLIENTS_MAX).contains(n));
                count =
                    number.ok_or((head.number, format!("after `x` comes a number of clients, 1 to {CLIENTS_MAX}")))?;
            }
            _ => return Err((head.number, format!("`{word}`: a client is `client NAME [x N] [background]`"))),
        }
    }
    Ok(Act::Client { name, count, background, steps: steps::read(body, Side::Client, names)? })
}

fn config(body: &[Numbered]) -> Result<String, Wrong> {
    let mut text = String::new();
    for line in body {
        let verbatim =
            line.text.strip_prefix('|').ok_or((line.number, "settings are written as `| line`".to_string()))?;
        text.push_str(verbatim.strip_prefix(' ').unwrap_or(verbatim));
        text.push('\n');
    }
    Ok(text)
}

fn finish(script: &Script) -> Result<(), Wrong> {
    for act in &script.acts {
        if let Act::Wait { name } = act {
            let known =
                script.acts.iter().any(|a| matches!(a, Act::Client { name: n, background: true, .. } if n == name));
            if !known {
                return Err((0, format!("`wait {name}`: no client of that name plays in the background")));
            }
        }
    }
    let parties = script.acts.iter().filter_map(|a| if let Act::Client { steps, .. } = a { Some(steps) } else { None });
    for steps in parties.chain(script.origins.iter().map(|o| &o.steps)) {
        no_barrier_twice(steps)?;
    }
    Ok(())
}

fn no_barrier_twice(steps: &[Step]) -> Result<(), Wrong> {
    let mut seen = Vec::new();
    for step in steps {
        if let Action::Barrier(name) = &step.what {
            if seen.contains(&name) {
                return Err((
                    step.line,
                    format!("this party meets barrier `{name}` twice: give the second another name"),
                ));
            }
            seen.push(name);
        }
    }
    Ok(())
}
