//! Chromium without a window, driven over the DevTools protocol by two pipes: no port, no library.

use crate::shell::{self, Trouble};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long an answer of the browser is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one page.
pub struct Browser {
    child: Child,
    asks: std::process::ChildStdin,
    answers: Receiver<Value>,
    session: String,
    number: u64,
    /// Complaints of the page to its console.
    complaints: Vec<String>,
}

impl Browser {
    /// Starts the program with a profile in `folder`.
    pub fn start(program: &Path, folder: &Path) -> Result<Browser, Trouble> {
        // The protocol speaks on descriptors 3 and 4; the shell puts our pipes there. Without the sandbox, because
        // that needs rights which a container does not give; only our own page is opened.
        let script = "exec \"$0\" --headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars \
                      --disable-background-networking --disable-component-update --user-data-dir=\"$1\" \
                      --remote-debugging-pipe about:blank 3<&0 4>&1 >/dev/null 2>&1 </dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(program).arg(folder.join("profile"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let asks = child.stdin.take().ok_or("the browser has no pipe to ask by")?;
        let said = child.stdout.take().ok_or("the browser has no pipe to answer by")?;
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(said).split(0).map_while(Result::ok) {
                let Ok(value) = serde_json::from_slice(&message) else { continue };
                if tell.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { child, asks, answers, session: String::new(), number: 0, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach)?;
        browser.session = session["sessionId"].as_str().unwrap_or_default().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value, Trouble> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.asks.write_all(&bytes).map_err(|error| format!("asking the browser: {error}"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut answer = match self.answers.recv_timeout(left) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => return Err(format!("{method}: no answer in {PATIENCE:?}")),
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{method}: the browser has ended")),
            };
            if answer["id"] == self.number {
                return match answer["error"]["message"].as_str() {
                    Some(error) => Err(format!("{method}: {error}")),
                    None => Ok(answer["result"].take()),
                };
            }
            self.complaints.extend(complaint(&answer));
        }
    }

    /// Gives the window this many pixels and the page these colours.
    pub fn show(&mut self, width: u32, height: u32, colours: &str) -> Result<(), Trouble> {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics)?;
        let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
        // An element that fades in is not to be judged half way.
        let still = feature("prefers-reduced-motion", "reduce");
        let media = json!({ "features": [feature("prefers-color-scheme", colours), still] });
        self.call("Emulation.setEmulatedMedia", media).map(|_| ())
    }

    /// Opens an address.
    pub fn open(&mut self, address: &str) -> Result<(), Trouble> {
        self.call("Page.navigate", json!({ "url": address })).map(|_| ())
    }

    /// The value of an expression in the page; a promise is awaited.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value, Trouble> {
        let asked = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", asked)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(format!("{expression}: {}", thrown["exception"]["description"])),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, what: &str, expression: &str) -> Result<(), Trouble> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            // While a page is being loaded, nothing is where it should be.
            if self.evaluate(&format!("Boolean({expression})")).is_ok_and(|value| value == true) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{what}: did not come in {PATIENCE:?} ({expression})"))
    }

    /// Presses a key, as on a keyboard.
    pub fn press(&mut self, key: &str, code: u32) -> Result<(), Trouble> {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if key == "Enter" {
                event["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// A picture of what is seen, or of the whole page, as PNG in Base64.
    fn picture(&mut self, whole: bool) -> Result<String, Trouble> {
        let shot = json!({ "format": "png", "captureBeyondViewport": whole });
        let answer = self.call("Page.captureScreenshot", shot)?;
        answer["data"].as_str().map(str::to_owned).ok_or_else(|| "the browser made no picture".to_owned())
    }

    /// Writes a picture as PNG into a file.
    pub fn keep_picture(&mut self, file: &Path, whole: bool) -> Result<(), Trouble> {
        let coded = file.with_extension("b64");
        let picture = self.picture(whole)?;
        std::fs::write(&coded, picture).map_err(|error| format!("writing {}: {error}", coded.display()))?;
        let script = "base64 -d \"$0\" > \"$1\" && rm \"$0\"";
        shell::call(Command::new("sh").args(["-c", script]).arg(&coded).arg(file))
    }

    /// Errors and warnings of the console so far; they are told once.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        let asked = self.call("Browser.close", json!({}));
        if asked.is_err() {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

/// The complaint in an event of the protocol, if it has one.
fn complaint(event: &Value) -> Option<String> {
    let said = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(said["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if matches!(said["type"].as_str(), Some("error" | "warning" | "assert")) => {
            Some(said["args"].to_string())
        }
        "Log.entryAdded" if matches!(said["entry"]["level"].as_str(), Some("error" | "warning")) => {
            Some(format!("{} {}", said["entry"]["text"], said["entry"]["url"]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_errors_and_warnings_alone() {
        let console = |kind: &str| {
            let event = json!({ "method": "Runtime.consoleAPICalled", "params": { "type": kind, "args": [] } });
            complaint(&event).is_some()
        };
        assert_eq!((console("error"), console("warning"), console("info")), (true, true, false));
        assert_eq!(complaint(&json!({ "id": 1, "result": {} })), None);
    }
}
