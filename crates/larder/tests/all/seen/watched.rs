//! Files that scripts do not import, and the lines that tracebacks show when a file has changed; with a real interpreter.

use super::mounts::{get, settings};
use super::reload::{Steered, base};
use super::stand::{self, body, exchange, wait_for};
use std::fs;
use std::net::SocketAddr;

/// Reads its template once, as frameworks do, and fails where it is asked to.
const WSGI: &str = r#"
import glob
TEXT = " ".join(open(name).read() for name in sorted(glob.glob("templates/*.html")))

def application(environ, start_response):
    if environ["PATH_INFO"] == "/fail":
        raise KeyError("the line of the old file")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [TEXT.encode()]
"#;

const ASGI: &str = r#"
async def app(scope, receive, send):
    if scope["type"] == "http":
        raise KeyError("the line of the old file")
"#;

const HOOKS: &str = r#"
import helper, larder

@larder.request
def fails(req):
    helper.give()
"#;

const HELPER: &str = "def give():\n    raise KeyError('the line of the old file')\n";

#[test]
fn a_template_that_changes_appears_or_goes_begins_the_application_anew() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("app.py", WSGI);
    write("templates/a.html", "one");
    let text = settings(folder.path(), "reload = \"on-change\"\nprocesses = 1\n");
    let steered = Steered::start(folder.path(), &text);
    let proxy = steered.server.addresses()[0];
    let page = || body(&get(proxy, "/")).to_owned();
    assert_eq!(page(), "one");
    let generation = || steered.server.shared().nursery.mounts().all()[0].report().generation;
    write("templates/a.html", "two");
    wait_for("a changed template", || page() == "two");
    write("templates/b.html", "three");
    wait_for("a new template", || page() == "two three");
    fs::remove_file(folder.path().join("templates/a.html")).unwrap();
    wait_for("a template that is gone", || page() == "three");
    // Neither an editor's copy nor a file of another kind is one of the application's.
    let before = generation();
    write("templates/.b.html.swp", "x");
    write("templates/b.html~", "x");
    write("uploads/c.html", "x");
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(generation(), before);
    // Others are watched by their names.
    steered.reload(&text.replace("reload =", "watch = [\"uploads/*.html\"]\nreload =")).unwrap();
    wait_for("the settings hold", || generation() > before);
    wait_for("it is ready", || page() == "three");
    let before = generation();
    write("uploads/c.html", "y");
    wait_for("a watched upload", || generation() > before);
}

#[test]
fn a_changed_template_is_taken_up_by_a_reload_where_nothing_else_is_said() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("templates")).unwrap();
    let write = |text: &str| fs::write(folder.path().join("templates/a.html"), text).unwrap();
    fs::write(folder.path().join("app.py"), WSGI).unwrap();
    write("one");
    let text = settings(folder.path(), "processes = 1\n");
    let steered = Steered::start(folder.path(), &text);
    let proxy = steered.server.addresses()[0];
    assert_eq!(body(&get(proxy, "/")), "one");
    write("two");
    steered.reload(&text).unwrap();
    wait_for("the new template", || body(&get(proxy, "/")) == "two");
}

#[test]
fn after_a_failed_reload_tracebacks_show_the_lines_that_run() {
    for (origin, file, text) in [
        ("wsgi:app", "app.py", WSGI),
        ("asgi:app:app", "app.py", ASGI),
        ("http://127.0.0.1:1\"\nhooks = [\"policy.py\"]\n#", "policy.py", HOOKS),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(file), text).unwrap();
        fs::write(folder.path().join("helper.py"), HELPER).unwrap();
        let configuration = format!(
            "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"app.example\"]\norigin = \"{origin}\"\n\
             [[python]]\nname = \"app\"\nfolder = \"{}\"\nprocesses = 1\nreload = \"on-change\"\n",
            base(folder.path()),
            folder.path().display()
        );
        let steered = Steered::start(folder.path(), &configuration);
        let proxy = steered.server.addresses()[0];
        let state = &steered.server.shared().nursery.mounts().all()[0];
        let fail = |proxy: SocketAddr| {
            let answer = exchange(proxy, "GET /fail HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
        };
        fail(proxy);
        stand::wait_for("a traceback", || !state.report().failures.is_empty());
        fs::write(folder.path().join("helper.py"), "# another\n\n# file of new lines\n").unwrap();
        fs::write(
            folder.path().join(file),
            "# the lines\n# of a new file\n# that is\n# broken\nimport no_such_module\n\n\n",
        )
        .unwrap();
        wait_for("the broken file is refused", || state.report().load_failure.is_some());
        let before = state.report().failures.len();
        fail(proxy);
        wait_for("another traceback", || state.report().failures.len() > before);
        let failures = state.report().failures;
        let traces: Vec<&str> = failures.iter().map(|failure| failure.traceback.as_str()).collect();
        assert!(
            traces
                .iter()
                .all(|trace| trace.contains("the line of the old file')")
                    || trace.contains("the line of the old file\")")),
            "{traces:?}"
        );
        assert!(!traces.concat().contains("# "), "{origin}: {traces:?}");
    }
}
