//! Where a process was that hung, or is that loads for long: found in the stacks of its threads, which `faulthandler` writes into its log before it is killed.

use std::path::Path;

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The path of the file.
    pub file: String,
    /// The line that ran.
    pub line: u32,
    /// The name of the function.
    pub function: String,
}

/// Frames of one thread that are kept: `faulthandler` writes no more.
const FRAMES_MAX: usize = 100;

/// Reads the log of a process for stacks of threads that serve a request, or load the application.
pub(super) struct StackFinder {
    /// The folder of the runtime, with a slash behind it.
    runtime: String,
    /// The frames of the thread so far that are not the runtime's, the innermost first.
    frames: Vec<Frame>,
}

impl StackFinder {
    /// For a process that imports the runtime from this folder.
    pub fn new(library: &Path) -> StackFinder {
        StackFinder { runtime: format!("{}/", library.join("larder").display()), frames: Vec::new() }
    }

    /// Takes a line of the log. Gives the frames of a thread that runs something of the author's for a request, or to load it, the
    /// innermost first.
    pub fn take(&mut self, line: &[u8]) -> Option<Vec<Frame>> {
        let Some(frame) = frame(line) else {
            // Of a deep stack the rest is left out.
            let is_cut = line.trim_ascii() == b"...";
            let frames = std::mem::take(&mut self.frames);
            return Some(frames).filter(|frames| is_cut && !frames.is_empty());
        };
        match frame.file.strip_prefix(&self.runtime) {
            Some(module) => {
                let serves = matches!(
                    (module, frame.function.as_str()),
                    ("_calls.py", "_run")
                        | ("_wsgi.py", "_serve_request" | "_send_result")
                        | ("_asgi.py", _)
                        | ("_runtime.py", "load_application")
                        | ("_hooks.py", "_load_file")
                );
                (serves && !self.frames.is_empty()).then(|| std::mem::take(&mut self.frames))
            }
            None => {
                if self.frames.len() < FRAMES_MAX {
                    self.frames.push(frame);
                }
                None
            }
        }
    }
}

/// Whether a process writes its stacks at SIGUSR2: proc_pid_status(5) says which signals it has taken over.
pub(super) fn are_written_by(pid: u32) -> bool {
    const USR2: u64 = 1 << (rustix::process::Signal::USR2.as_raw() - 1);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok()).is_some_and(|caught| caught & USR2 != 0)
}

/// Reads `  File "/srv/app.py", line 7 in view`.
fn frame(line: &[u8]) -> Option<Frame> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix("  File \"")?;
    let (file, rest) = text.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(Frame { file: file.to_owned(), line: line.parse().ok()?, function: function.trim_end().to_owned() })
}

/// The place in words: the innermost frame of the author's own files.
pub(super) fn place_of(frames: &[Frame], folder: &Path) -> Option<String> {
    let folder = std::path::absolute(folder).ok()?;
    let is_own = |frame: &&Frame| {
        let is_installed = ["/site-packages/", "/dist-packages/"].iter().any(|part| frame.file.contains(part));
        Path::new(&frame.file).starts_with(&folder) && !is_installed
    };
    let Frame { file, line, function } = frames.iter().find(is_own).or(frames.first())?;
    let shown = Path::new(file).strip_prefix(&folder).map_or(file.clone(), |path| path.display().to_string());
    Some(format!("it was here: {shown}, line {line}, in {function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(log: &str) -> Vec<Vec<Frame>> {
        let mut finder = StackFinder::new(Path::new("/run/lib"));
        log.lines().filter_map(|line| finder.take(line.as_bytes())).collect()
    }

    #[test]
    fn the_place_is_the_innermost_line_of_the_authors_files() {
        let log = "\
Thread 0x00007f (most recent call first):
  File \"/usr/lib/python3.11/threading.py\", line 320 in wait
  File \"/usr/lib/python3.11/threading.py\", line 975 in _bootstrap

Current thread 0x00007f (most recent call first):
  File \"/usr/lib/python3.11/re/__init__.py\", line 166 in match
  File \"/srv/shop/lib/words.py\", line 3 in split
  File \"/run/lib/larder/_views.py\", line 9 in get
  File \"/srv/shop/policy.py\", line 7 in hangs
  File \"/run/lib/larder/_calls.py\", line 136 in _run
  File \"/run/lib/larder/_calls.py\", line 100 in reply
  File \"<string>\", line 1 in <module>
and more
";
        let stacks = found(log);
        assert_eq!(stacks.len(), 1, "{stacks:?}");
        let place = place_of(&stacks[0], Path::new("/srv/shop"));
        assert_eq!(place.as_deref(), Some("it was here: lib/words.py, line 3, in split"));
        assert_eq!(stacks[0].last().map(|frame| frame.function.as_str()), Some("hangs"));
        let other = place_of(&stacks[0], Path::new("/elsewhere"));
        assert_eq!(other.as_deref(), Some("it was here: /usr/lib/python3.11/re/__init__.py, line 166, in match"));
    }

    #[test]
    fn a_process_that_loads_is_somewhere_too() {
        let log = "\
Current thread 0x1 (most recent call first):
  File \"/srv/shop/words.py\", line 9 in <module>
  File \"<frozen importlib._bootstrap>\", line 241 in _call_with_frames_removed
  File \"/srv/shop/policy.py\", line 2 in <module>
  File \"/run/lib/larder/_hooks.py\", line 130 in _load_file
";
        let stacks = found(log);
        let place = place_of(&stacks[0], Path::new("/srv/shop"));
        assert_eq!((stacks.len(), place.as_deref()), (1, Some("it was here: words.py, line 9, in <module>")));
        let of_application = log.replace("_hooks.py", "_runtime.py").replace("_load_file", "load_application");
        assert_eq!(found(&of_application), stacks);
        assert!(!are_written_by(std::process::id()), "the tests don't");
    }

    #[test]
    fn an_idle_thread_has_no_place_and_a_deep_stack_has_one() {
        let idle = "\
Current thread 0x1 (most recent call first):
  File \"/run/lib/larder/_wsgi.py\", line 500 in _serve
  File \"<string>\", line 1 in <module>
";
        assert!(found(idle).is_empty());
        let frames = "  File \"/srv/app.py\", line 5 in deeper\n".repeat(100);
        let deep = found(&format!("Current thread 0x1 (most recent call first):\n{frames}  ...\n"));
        assert_eq!((deep.len(), deep[0].len()), (1, 100));
        assert!(found("  File \"a\", line x in b\n  File \"\", line 5\n\u{1b}\n  ...\n").is_empty());
    }
}
