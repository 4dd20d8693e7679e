//! The page in a real browser: a walk through all of it under load, by keyboard and pointer, light and dark, wide and
//! narrow. A complaint of the page to its console is red, and so is a serious finding of axe-core.

mod driver;
mod place;

use crate::shell::{self, Trouble};
use crate::tally::{self, Tally};
pub use driver::Browser;
use place::{Place, TOKEN};
use serde_json::Value;
use std::path::PathBuf;

/// The output to keep.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Keep pictures of all views here.
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// So many seconds of traffic before the pictures are taken.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
}

/// Names of the program in distributions.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Width and height in pixels, light or dark.
const WINDOWS: [(u32, u32, &str); 4] =
    [(1440, 1000, "light"), (1440, 1000, "dark"), (390, 844, "light"), (390, 844, "dark")];

const VIEWS: [&str; 6] = ["now", "requests", "store", "upstreams", "applications", "settings"];

/// Walks and prints what it finds.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let tally = play(args)?;
    println!("browser: {} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    if tally.failed == 0 { Ok(()) } else { Err("the page is not as it should be".into()) }
}

/// Like [`run`], but gives the counts instead of printing them.
pub fn play(args: &Args) -> Result<Tally, Trouble> {
    let Some(program) = find_program() else {
        return Ok(tally::missing("chromium is not installed"));
    };
    let root = shell::workspace()?;
    shell::build(&root)?;
    let place = Place::set_up(&root)?;
    let mut walk = Walk { browser: Browser::start(&program, place.folder())?, place, tally: Tally::default() };
    for (name, step) in STEPS {
        if !walk.step(name, *step) && name.starts_with("token") {
            return Ok(walk.tally);
        }
    }
    walk.pictures(args)?;
    Ok(walk.tally)
}

/// The browser of this machine.
pub fn find_program() -> Option<PathBuf> {
    PROGRAMS.iter().find_map(|name| shell::find_program(name))
}

/// A walk under way.
struct Walk {
    browser: Browser,
    place: Place,
    tally: Tally,
}

type Step = fn(&mut Walk) -> Result<(), Trouble>;

/// Each leaves the page where the next one can begin.
const STEPS: &[(&str, Step)] = &[
    ("token: asked for, a wrong one is refused, the right one opens", Walk::token),
    ("numbers and charts move under load", Walk::moves),
    ("keyboard: views are reached, the chart is read, the skip link works", Walk::keyboard),
    ("hot objects, causes and hosts are there", Walk::hot),
    ("a request explains itself on a click, Escape closes it", Walk::explain),
    ("search finds what is stored, and shows its head", Walk::search),
    ("a purge is asked about, and done", Walk::purge),
    ("upstreams and settings are listed and narrowed", Walk::tables),
    ("an application shows its exceptions as text, and a selection stays", Walk::applications),
    ("light and dark by a switch, remembered", Walk::colours),
    ("the documentation: search, copy, no wider than a phone", Walk::documentation),
    ("a lost connection is said, and found again", Walk::lost),
    ("no view is wider than a phone", Walk::narrow),
    ("axe-core finds nothing serious", Walk::accessible),
    ("the console is silent", Walk::silent),
];

impl Walk {
    /// Takes one step; whether it went well.
    fn step(&mut self, name: &str, step: Step) -> bool {
        let outcome = step(self);
        match &outcome {
            Ok(()) => println!("ok      {name}"),
            Err(trouble) => println!("FAILED  {name}: {trouble}"),
        }
        self.tally.add(Tally::of(&outcome));
        outcome.is_ok()
    }

    fn see(&mut self, what: &str, expression: &str) -> Result<(), Trouble> {
        self.browser.wait_for(what, expression)
    }

    fn go(&mut self, hash: &str) -> Result<(), Trouble> {
        self.browser.evaluate(&format!("location.hash = {}", Value::from(hash)))?;
        let view = hash.split('?').next().unwrap_or_default();
        self.see(hash, &format!("!document.getElementById('view-{view}').hidden"))
    }

    fn token(&mut self) -> Result<(), Trouble> {
        self.browser.show(1440, 1000, "light")?;
        self.browser.open(&self.place.page())?;
        self.see("the dialog", "document.getElementById('token')?.open")?;
        let enter = |token: &str| {
            format!(
                "document.getElementById('token-input').value = '{token}'; document.getElementById('token-form').requestSubmit()"
            )
        };
        self.browser.evaluate(&enter("wrong"))?;
        self.see("a second question", "document.getElementById('token').open && document.getElementById('token-text').textContent.includes('not it')")?;
        self.browser.evaluate(&enter(TOKEN))?;
        self.see("the events", "document.getElementById('state').dataset.state === 'live'")?;
        // The refusals that were provoked are in the console; nothing else may be.
        let other: Vec<_> = self.browser.complaints().into_iter().filter(|said| !said.contains("401")).collect();
        if other.is_empty() { Ok(()) } else { Err(other.join("; ")) }
    }

    fn moves(&mut self) -> Result<(), Trouble> {
        let since = "Number(document.getElementById('rate-beside').textContent.replace(/\\D/g, ''))";
        let before = self.browser.evaluate(since)?;
        self.see("more requests", &format!("{since} > {before} + 20"))?;
        self.see("a rate", "Number(document.getElementById('rate').textContent) > 0")?;
        self.see("a ratio", "document.getElementById('ratio').textContent.includes('%')")?;
        self.see("a line", "document.querySelector('#rate-spark .line').getAttribute('d')?.includes('L')")?;
        self.see("a layer", "document.querySelector('#traffic .layer.store').getAttribute('d')?.includes('Z')")
    }

    fn keyboard(&mut self) -> Result<(), Trouble> {
        self.browser.evaluate("document.querySelector('.skip').focus()")?;
        self.browser.press("Enter", 13)?;
        self.see("the content has the focus", "document.activeElement.id === 'main'")?;
        self.go("now")?;
        self.browser.evaluate("document.querySelector('.brand').focus()")?;
        for _ in 0..2 {
            self.browser.press("Tab", 9)?;
        }
        self.see("the second view is in reach", "document.activeElement.hash === '#requests'")?;
        self.browser.press("Enter", 13)?;
        self.see(
            "it opens",
            "!document.getElementById('view-requests').hidden && document.title.startsWith('Requests')",
        )?;
        self.go("now")?;
        self.browser.evaluate("document.querySelector('.frame').focus()")?;
        self.browser.press("ArrowLeft", 37)?;
        self.see("a second is read", "document.querySelector('.tip').textContent.includes('from the store')")
    }

    fn hot(&mut self) -> Result<(), Trouble> {
        self.go("now")?;
        self.see("hot URLs", "document.querySelectorAll('#hot tbody tr').length > 3")?;
        self.see("causes", "document.querySelectorAll('#causes .share').length > 1")?;
        self.see("hosts", "document.querySelectorAll('#hosts .share').length > 0")?;
        self.see("latest requests", "document.querySelectorAll('#latest tbody tr').length > 3")
    }

    /// The list of requests as it is now. The view shows what it had until new rows are here, and the records of old rows may be gone
    /// under load.
    fn see_requests_anew(&mut self) -> Result<(), Trouble> {
        let mark =
            "document.querySelectorAll('#requests tbody tr').forEach(row => { row.dataset.before = 'yes' }); true";
        self.browser.evaluate(mark)?;
        self.go("requests")?;
        self.see("requests", "document.querySelectorAll('#requests tbody tr:not([data-before])').length > 5")
    }

    fn explain(&mut self) -> Result<(), Trouble> {
        self.see_requests_anew()?;
        self.browser.evaluate("document.querySelector('#requests tbody button').click()")?;
        self.see(
            "its explanation",
            "document.getElementById('drawer').open && document.querySelectorAll('#drawer-body li').length > 2",
        )?;
        self.browser.press("Escape", 27)?;
        self.see("the drawer closes", "!document.getElementById('drawer').open")
    }

    fn search(&mut self) -> Result<(), Trouble> {
        self.go("store")?;
        let prefix = self.place.host() + "/img/";
        self.browser.evaluate(&format!("document.querySelector('#search input').value = '{prefix}'; document.getElementById('search').requestSubmit()"))?;
        self.see("only these", "[...document.querySelectorAll('#objects .url')].length > 3 && [...document.querySelectorAll('#objects .url')].every(url => url.title.includes('/img/'))")?;
        self.browser.evaluate("document.querySelector('#objects .url').click()")?;
        self.see("its head", "document.getElementById('drawer').open && document.getElementById('drawer-body').textContent.includes('Cache-Control')")
    }

    fn purge(&mut self) -> Result<(), Trouble> {
        self.go("store?prefix=")?;
        // An object that the load does not ask for again.
        let url = format!("http://{}/once", self.place.host());
        self.place.ask("/once")?;
        self.go(&format!("store?prefix={url}"))?;
        self.see("it is found", "document.querySelectorAll('#objects .url').length === 1")?;
        self.browser.evaluate("document.querySelector('#objects .url').click()")?;
        self.see("the drawer", "document.getElementById('drawer').open")?;
        self.browser.evaluate("document.querySelector('#drawer .danger').click()")?;
        self.see(
            "the question",
            "document.getElementById('confirm').open && document.activeElement.id === 'confirm-no'",
        )?;
        self.browser.press("Enter", 13)?;
        self.see(
            "it stays",
            "!document.getElementById('confirm').open && document.querySelectorAll('#objects .url').length === 1",
        )?;
        self.browser.evaluate("document.querySelector('#drawer .danger').click()")?;
        self.see("the question again", "document.getElementById('confirm').open")?;
        self.browser.evaluate("document.getElementById('confirm-yes').click()")?;
        self.see("it is gone", "document.querySelectorAll('#objects .url').length === 0 && document.getElementById('toast').textContent.startsWith('Purged')")
    }

    fn tables(&mut self) -> Result<(), Trouble> {
        self.go("upstreams")?;
        let origin = self.place.host();
        self.see("the origin", &format!("document.getElementById('upstreams').textContent.includes('{origin}')"))?;
        self.go("settings")?;
        self.see("all settings", "document.querySelectorAll('#settings tbody tr').length > 30")?;
        self.browser.evaluate("{ const form = document.getElementById('narrow'); form.word.value = 'disk'; form.changed.checked = true; form.dispatchEvent(new Event('input')) }")?;
        self.see("one of them, with its place", "document.querySelectorAll('#settings tbody tr').length === 1 && document.getElementById('settings').textContent.includes('larder.toml')")?;
        let shown = self.browser.evaluate("document.body.textContent")?;
        if shown.as_str().unwrap_or_default().contains(TOKEN) { Err("the token is shown".into()) } else { Ok(()) }
    }

    fn applications(&mut self) -> Result<(), Trouble> {
        if !self.place.has_application() {
            println!("skipped: python3 is not installed");
            return Ok(());
        }
        for _ in 0..2 {
            self.place.ask_application("/raise")?;
        }
        self.go("applications")?;
        self.see("the link", "!document.getElementById('to-applications').hidden")?;
        self.see("two exceptions", "document.querySelectorAll('#applications .failures details').length === 2")?;
        let summary = "document.querySelector('#applications .failures summary').textContent";
        self.see("the exception's own line", &format!("{summary}.includes('ValueError: <script>')"))?;
        self.browser.evaluate("document.querySelector('#applications .failures summary').click()")?;
        let traceback = "document.querySelector('#applications .failures details[open] pre').textContent";
        self.see(
            "the traceback",
            &format!("{traceback}.includes('<img src=x>') && {traceback}.includes('\\\\u{{1b}}[2J')"),
        )?;
        self.see("no markup", "!document.querySelector('#applications img, #applications script')")?;
        self.browser
            .evaluate("getSelection().selectAllChildren(document.querySelector('#applications .failures pre'))")?;
        let requests = "document.querySelector('#applications .strip dd').textContent";
        let before = self.browser.evaluate(requests)?;
        self.place.ask_application("/raise")?;
        self.see(
            "a later exception",
            &format!(
                "{requests} !== {before} && document.querySelectorAll('#applications .failures details').length === 3"
            ),
        )?;
        self.see("the selection stays", "getSelection().toString().includes('ValueError')")?;
        self.see(
            "and what was unfolded",
            "document.querySelectorAll('#applications .failures details[open]').length === 1",
        )?;
        self.browser.evaluate("document.querySelector('#applications .failures details[open] button').click()")?;
        self.see("the request's explanation", "document.getElementById('drawer').open && document.getElementById('drawer-body').textContent.includes('The application was asked')")?;
        self.browser.press("Escape", 27)
    }

    fn colours(&mut self) -> Result<(), Trouble> {
        self.go("now")?;
        let ground = "getComputedStyle(document.body).backgroundColor";
        let light = self.browser.evaluate(ground)?;
        for _ in 0..2 {
            self.browser.evaluate("document.getElementById('theme').click()")?;
        }
        self.see("dark", &format!("document.documentElement.dataset.theme === 'dark' && {ground} !== {light}"))?;
        self.browser.call("Page.reload", serde_json::json!({}))?;
        self.see("dark still, and no token asked for", "document.documentElement.dataset.theme === 'dark' && document.getElementById('state').dataset.state === 'live'")?;
        self.browser.evaluate("document.getElementById('theme').click()")?;
        self.see("as the system says", "document.documentElement.dataset.theme === 'light'")?;
        self.browser.show(1440, 1000, "dark")?;
        self.see("the system's dark", "document.documentElement.dataset.theme === 'dark'")
    }

    fn documentation(&mut self) -> Result<(), Trouble> {
        self.browser.show(1440, 1000, "light")?;
        self.browser.open(&format!("{}docs/settings", self.place.page()))?;
        self.see("its sections", "document.querySelectorAll('.of-page.beside a').length > 20")?;
        self.browser.evaluate(
            "const words = document.getElementById('docs.words'); words.value = 'tls passed through'; words.dispatchEvent(new Event('input')); true",
        )?;
        self.see("hits", "document.querySelector('.hits a mark') !== null")?;
        self.browser.evaluate("document.getElementById('docs.find').requestSubmit()")?;
        self.see("the first hit", "location.pathname === '/docs/pass-through'")?;
        self.see("copy buttons", "document.querySelectorAll('.example .copy').length > 0")?;
        self.browser.evaluate("document.querySelector('.example .copy').click(); true")?;
        self.see("a copy, or a selection to copy", "document.querySelector('.example .copy').textContent !== 'Copy'")?;
        for width in [390, 320] {
            self.browser.show(width, 844, "light")?;
            for page in ["", "settings", "errors", "python"] {
                self.browser.open(&format!("{}docs/{page}", self.place.page()))?;
                self.see("the page", &format!("location.pathname === '/docs/{page}' && document.readyState === 'complete' && document.querySelector('article h1') !== null"))?;
                let wide = self.browser.evaluate("document.documentElement.scrollWidth")?;
                if wide.as_u64().is_none_or(|wide| wide > u64::from(width)) {
                    return Err(format!("docs/{page} is {wide} pixels wide in a window of {width}"));
                }
            }
        }
        self.back()
    }

    /// Goes from the documentation to the page.
    fn back(&mut self) -> Result<(), Trouble> {
        self.browser.show(1440, 1000, "dark")?;
        self.browser.open(&self.place.page())?;
        self.see("the events", "document.getElementById('state')?.dataset.state === 'live'")
    }

    fn lost(&mut self) -> Result<(), Trouble> {
        self.place.restart()?;
        self.see("it is live again", "document.getElementById('state').dataset.state === 'live'")?;
        self.see("the new server's numbers", "/up for \\d+\\s*s/.test(document.getElementById('about').textContent)")?;
        // Meanwhile nothing answered, and the browser says that by itself.
        let network = |said: &String| said.contains("ERR_") || said.contains("Failed to load");
        let other: Vec<_> = self.browser.complaints().into_iter().filter(|said| !network(said)).collect();
        if other.is_empty() { Ok(()) } else { Err(other.join("; ")) }
    }

    fn narrow(&mut self) -> Result<(), Trouble> {
        for width in [390, 320] {
            self.browser.show(width, 844, "light")?;
            for view in VIEWS {
                self.go(view)?;
                self.settle()?;
                let wide = self.browser.evaluate("document.documentElement.scrollWidth")?;
                if wide.as_u64().is_none_or(|wide| wide > u64::from(width)) {
                    return Err(format!("{view} is {wide} pixels wide in a window of {width}"));
                }
            }
        }
        Ok(())
    }

    /// Waits until a view has what it asked for.
    fn settle(&mut self) -> Result<(), Trouble> {
        self.see("content", "[...document.querySelectorAll('main > section:not([hidden]) .panel > div[id]')].every(place => place.childElementCount)")
    }

    fn accessible(&mut self) -> Result<(), Trouble> {
        let Some(axe) = self.place.axe()? else {
            self.tally.add(Tally::skipped());
            println!("skipped: axe-core could not be had from npm");
            return Ok(());
        };
        let mut found = Vec::new();
        for (width, height, colours) in WINDOWS {
            self.browser.show(width, height, colours)?;
            for view in VIEWS {
                self.go(view)?;
                self.settle()?;
                found.extend(self.judge(&axe)?.into_iter().map(|said| format!("{view} {width} {colours}: {said}")));
            }
            self.see_requests_anew()?;
            self.browser.evaluate("document.querySelector('#requests tbody button').click()")?;
            self.see("the drawer", "document.getElementById('drawer').open")?;
            found.extend(self.judge(&axe)?.into_iter().map(|said| format!("drawer {width} {colours}: {said}")));
            self.browser.press("Escape", 27)?;
        }
        for (width, height, colours) in WINDOWS {
            self.browser.show(width, height, colours)?;
            self.browser.open(&format!("{}docs/page", self.place.page()))?;
            self.see(
                "the page",
                "location.pathname === '/docs/page' && document.getElementById('docs.find')?.hidden === false",
            )?;
            found.extend(self.judge(&axe)?.into_iter().map(|said| format!("docs {width} {colours}: {said}")));
        }
        self.back()?;
        if found.is_empty() { Ok(()) } else { Err(found.join("\n        ")) }
    }

    /// The violations that axe-core finds serious or critical.
    fn judge(&mut self, axe: &str) -> Result<Vec<String>, Trouble> {
        self.browser.evaluate(&format!("if (!window.axe) {{ {axe} }}; true"))?;
        let violations = self.browser.evaluate(
            "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations
               .filter(({ impact }) => impact === 'serious' || impact === 'critical')
               .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => html + ' ' + failureSummary).join(' | ')}`))",
        )?;
        Ok(violations.as_array().into_iter().flatten().map(ToString::to_string).collect())
    }

    fn silent(&mut self) -> Result<(), Trouble> {
        let said = self.browser.complaints();
        if said.is_empty() { Ok(()) } else { Err(said.join("; ")) }
    }

    /// One picture of each view in each window.
    fn pictures(&mut self, args: &Args) -> Result<(), Trouble> {
        let Some(folder) = &args.pictures else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|error| format!("making {}: {error}", folder.display()))?;
        std::thread::sleep(std::time::Duration::from_secs(args.seconds));
        for (width, height, colours) in WINDOWS {
            self.browser.show(width, height, colours)?;
            for view in VIEWS {
                self.go(view)?;
                self.settle()?;
                let file = folder.join(format!("{view}-{width}-{colours}.png"));
                self.browser.keep_picture(&file, true)?;
                println!("picture {}", file.display());
            }
        }
        Ok(())
    }
}
