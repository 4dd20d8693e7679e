//! Real applications, unmodified, behind Larder: a guest book in Flask and one in FastAPI, and Django's admin, used by a real
//! browser; uploads, downloads, events and a WebSocket; bodies of any size in memory that does not grow with them.

mod place;

use crate::browser::{self, Browser};
use crate::shell::{self, Trouble};
use crate::tally::{self, Tally};
use crate::{http, results};
use place::Place;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

/// The sizes, and the output to keep.
#[derive(clap::Args)]
pub struct Args {
    /// Bytes of the large upload and the large download of each application.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    large: u64,
    /// Keep a picture of Django's admin here.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Write the table into docs/results/applications.md.
    #[arg(long)]
    write: bool,
}

/// Plays all, prints a line for each, and writes the table if asked to.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let Some(program) = browser::find_program() else {
        return finish(tally::missing("chromium is not installed"));
    };
    let root = shell::workspace()?;
    shell::build(&root)?;
    let place = Place::set_up(&root)?;
    let browser = Browser::start(&program, place.folder())?;
    let mut walk = Walk { place, browser, large: args.large, rows: String::new(), tally: Tally::default() };
    for (site, name, step) in STEPS {
        walk.step(site, name, *step);
    }
    if let Some(file) = &args.picture {
        walk.browser.show(1200, 800, "light")?;
        walk.open("django", "/admin/")?;
        walk.browser.keep_picture(file, false)?;
    }
    if args.write {
        results::publish(&root, "applications", &walk.report()?)?;
    }
    finish(walk.tally)
}

fn finish(tally: Tally) -> Result<(), Trouble> {
    println!("applications: {} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    if tally.failed == 0 { Ok(()) } else { Err("an application is not served as it should be".into()) }
}

/// A walk under way.
struct Walk {
    place: Place,
    browser: Browser,
    large: u64,
    rows: String,
    tally: Tally,
}

/// Gives a remark for the table.
type Step = fn(&mut Walk, &str) -> Result<String, Trouble>;

/// Application, claim, step.
const STEPS: &[(&str, &str, Step)] = &[
    ("flask", "a form is sent, and its text is on the page", Walk::writes),
    ("flask", "each name sees its own page", Walk::names),
    ("flask", "a page that may be cached is a hit the second time, one that may not is not", Walk::caches),
    ("flask", "a form with a file", Walk::sends_file),
    ("flask", "events come while the answer goes on", Walk::hears),
    ("flask", "a large upload", Walk::uploads),
    ("flask", "a large download", Walk::downloads),
    ("fastapi", "a form is sent, and its text is on the page", Walk::writes),
    ("fastapi", "each name sees its own page", Walk::names),
    ("fastapi", "a page that may be cached is a hit the second time, one that may not is not", Walk::caches),
    ("fastapi", "a form with a file", Walk::sends_file),
    ("fastapi", "events come while the answer goes on", Walk::hears),
    ("fastapi", "a WebSocket", Walk::echoes),
    ("fastapi", "a large upload", Walk::uploads),
    ("fastapi", "a large download", Walk::downloads),
    ("django", "the admin: log in, add, change, delete", Walk::administers),
    ("django", "its style sheets are hits the second time", Walk::styles),
];

impl Walk {
    fn step(&mut self, site: &str, name: &str, step: Step) {
        let outcome = step(self, site).map_err(|trouble| format!("{trouble}; the page: {}", self.seen()));
        let (word, remark) = match &outcome {
            Ok(remark) => ("ok", remark),
            Err(trouble) => ("FAILED", trouble),
        };
        println!("{word:<7} {site}: {name}{}{remark}", if remark.is_empty() { "" } else { ": " });
        let _ = writeln!(self.rows, "| {site} | {name} | {word} | {} |", remark.replace('\n', " ").replace('|', "\\|"));
        self.tally.add(Tally::of(&outcome.map(drop)));
    }

    /// The beginning of the page that the browser shows.
    fn seen(&mut self) -> String {
        self.text("location.href + ' ' + document.body.innerText.slice(0, 300)").unwrap_or_default()
    }

    fn see(&mut self, what: &str, expression: &str) -> Result<(), Trouble> {
        self.browser.wait_for(what, expression)
    }

    fn open(&mut self, site: &str, path: &str) -> Result<(), Trouble> {
        let address = self.place.page(site, path);
        self.browser.open(&address)?;
        // The document that was there before may still answer, and look the same.
        self.see(
            &address,
            &format!(
                "location.href.startsWith({}) && document.readyState === 'complete'",
                Value::from(address.as_str())
            ),
        )
    }

    fn text(&mut self, expression: &str) -> Result<String, Trouble> {
        self.browser.evaluate(expression).map(|value| value.as_str().unwrap_or_default().to_owned())
    }

    fn writes(&mut self, site: &str) -> Result<String, Trouble> {
        let note = "<b>déjà vu</b> & so on";
        self.open(site, "/")?;
        let write =
            format!("document.getElementById('text').value = {}; document.querySelector('form').submit()", json!(note));
        self.browser.evaluate(&write)?;
        self.see("the note", &format!("document.querySelector('#notes li')?.textContent === {}", json!(note)))?;
        Ok(String::new())
    }

    fn names(&mut self, site: &str) -> Result<String, Trouble> {
        for name in ["ada", "grace", "ada"] {
            self.browser.open(&self.place.page(site, &format!("/name/{name}")))?;
            self.see(name, &format!("document.getElementById('name')?.textContent === '{name}'"))?;
        }
        // Without the cookie nobody's page.
        let answer = self.place.ask(site, "/", "")?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        if body.contains("<p id='name'>nobody</p>") { Ok(String::new()) } else { Err(format!("a stranger got {body}")) }
    }

    fn caches(&mut self, site: &str) -> Result<String, Trouble> {
        let [first, second] = [self.place.ask(site, "/cached", "")?, self.place.ask(site, "/cached", "")?];
        let is_same = first.status == 200 && first.body == second.body;
        let private = [self.place.ask(site, "/", "")?, self.place.ask(site, "/", "")?];
        match (is_same, is_hit(&first), is_hit(&second), private.iter().any(is_hit)) {
            (true, false, true, false) => Ok(String::new()),
            seen => Err(format!("one body, first a hit, second a hit, a private one a hit: {seen:?}")),
        }
    }

    fn sends_file(&mut self, site: &str) -> Result<String, Trouble> {
        self.open(site, "/")?;
        // Digests by the browser itself: `*.localhost` counts as secure.
        let send = "(async () => { const bytes = new Uint8Array(3000000).map((_, at) => at * at >> 3); \
                    const digest = [...new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))]; \
                    const form = new FormData(); form.append('file', new Blob([bytes]), 'a file.bin'); \
                    const answer = await fetch('/form', { method: 'POST', body: form }); \
                    const wanted = '3000000 ' + digest.map(byte => byte.toString(16).padStart(2, '0')).join(''); \
                    const said = await answer.text(); return said === wanted ? 'same' : said + ', not ' + wanted })()";
        match self.text(send)?.as_str() {
            "same" => Ok("3 MB".to_owned()),
            said => Err(said.to_owned()),
        }
    }

    fn hears(&mut self, site: &str) -> Result<String, Trouble> {
        self.open(site, "/")?;
        let listen = "new Promise((done, fail) => { const heard = [], source = new EventSource('/events'); \
                      source.onmessage = event => { heard.push([event.data, performance.now()]); \
                      if (event.data === 'end') { source.close(); done(JSON.stringify(heard)) } }; \
                      source.onerror = () => fail(new Error('broke off after ' + heard.length)) })";
        let heard: Vec<(String, f64)> = serde_json::from_str(&self.text(listen)?).map_err(|error| error.to_string())?;
        let words: Vec<&str> = heard.iter().map(|(word, _)| word.as_str()).collect();
        if words != ["0", "1", "2", "end"] {
            return Err(format!("heard {words:?}"));
        }
        // They are told 50 ms apart; all at once means that somebody kept them.
        match heard[3].1 - heard[0].1 {
            apart if apart > 75.0 => Ok(String::new()),
            apart => Err(format!("the first came {apart:.0} ms before the last, which was told 150 ms later")),
        }
    }

    fn echoes(&mut self, site: &str) -> Result<String, Trouble> {
        self.open(site, "/")?;
        let echo = "new Promise((done, fail) => { const socket = new WebSocket('ws://' + location.host + '/echo'); \
                    socket.onopen = () => socket.send('hello'); socket.onmessage = event => done(event.data); \
                    socket.onerror = () => fail(new Error('refused')) })";
        match self.text(echo)?.as_str() {
            "echo of hello" => Ok(String::new()),
            said => Err(format!("said {said:?}")),
        }
    }

    fn uploads(&mut self, site: &str) -> Result<String, Trouble> {
        let (file, wanted) = self.place.large_file(self.large)?;
        let before = self.place.resident_max()?;
        let said = self.place.send_file(site, "/upload", &file)?;
        if said.trim() != format!("{} {wanted}", self.large) {
            return Err(format!("the application got {said}, not {} {wanted}", self.large));
        }
        self.memory(before)
    }

    fn downloads(&mut self, site: &str) -> Result<String, Trouble> {
        let (_, wanted) = self.place.large_file(self.large)?;
        let before = self.place.resident_max()?;
        let got = self.place.digest_of(site, &format!("/download/{}", self.large))?;
        if got != wanted {
            return Err(format!("the digest is {got}, not {wanted}"));
        }
        self.memory(before)
    }

    /// The remark about the memory of a large body: most of it must not be in memory.
    fn memory(&self, before: u64) -> Result<String, Trouble> {
        let most = self.place.resident_max()?;
        let said = format!("{} MB; Larder's memory at most {:.1} MB", self.large / 1_000_000, most as f64 / 1000.0);
        let room = 16_000 + self.large / 1000 / 16;
        if most.saturating_sub(before) < room { Ok(said) } else { Err(format!("{said}, {} MB before", before / 1000)) }
    }

    fn administers(&mut self, site: &str) -> Result<String, Trouble> {
        self.open(site, "/admin/")?;
        self.see("the log-in", "document.getElementById('id_username')")?;
        let log_in = format!(
            "document.getElementById('id_username').value = 'admin'; document.getElementById('id_password').value = '{}'; \
             document.querySelector('#login-form').submit()",
            place::PASSWORD
        );
        self.browser.evaluate(&log_in)?;
        self.see("the index", "document.getElementById('user-tools')?.textContent.includes('admin')")?;
        self.save("/admin/guests/guest/add/", "Ada")?;
        self.see("the list", "document.querySelector('#result_list tbody th a')?.textContent === 'Ada'")?;
        let change = self.text("new URL(document.querySelector('#result_list tbody th a').href).pathname")?;
        self.save(&change, "Grace")?;
        self.see("the change", "document.querySelector('#result_list tbody th a')?.textContent === 'Grace'")?;
        self.open(site, &change.replace("/change/", "/delete/"))?;
        self.browser.evaluate("document.querySelector('#content form').submit()")?;
        self.see(
            "an empty list",
            "document.querySelector('.messagelist') && !document.querySelector('#result_list tbody th a')",
        )?;
        // A stranger does not get what the admin was shown.
        let stranger = self.place.ask(site, "/admin/guests/guest/", "")?;
        if stranger.status == 302 { Ok(String::new()) } else { Err(format!("a stranger got {}", stranger.status)) }
    }

    /// Fills in the form of a guest and saves it.
    fn save(&mut self, path: &str, name: &str) -> Result<(), Trouble> {
        self.open("django", path)?;
        self.see("the form", "document.getElementById('id_name')")?;
        self.browser
            .evaluate(&format!(
                "document.getElementById('id_name').value = '{name}'; document.querySelector('[name=_save]').click()"
            ))
            .map(drop)
    }

    fn styles(&mut self, site: &str) -> Result<String, Trouble> {
        let path = "/static/admin/css/base.css";
        self.place.ask(site, path, "")?;
        let second = self.place.ask(site, path, "")?;
        match (second.status, is_hit(&second)) {
            (200, true) => Ok(format!("{} bytes", second.body.len())),
            seen => Err(format!("status and whether it was a hit: {seen:?}")),
        }
    }

    fn report(&self) -> Result<String, Trouble> {
        Ok(format!(
            "# Applications\n\n`cargo xtask applications`: unmodified applications of Flask (WSGI), FastAPI (ASGI) and Django (WSGI), \
             two processes each, as origins of one Larder with 64 MB of memory and no disk; used by Chromium, large bodies by curl. \
             Sources in `xtask/applications`. {}.\n\n| application | claim | | |\n|---|---|---|---|\n{}",
            self.place.versions()?,
            self.rows
        ))
    }
}

fn is_hit(answer: &http::Answer) -> bool {
    answer.field("cache-status").is_some_and(|status| status.contains("; hit"))
}
