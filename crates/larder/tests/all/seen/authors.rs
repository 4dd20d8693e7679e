//! `larder new script` and `larder test`, as an author of hooks uses them.

use super::stand;
use larder::config::Loaded;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of an author, which is a home and has the only place for temporary files.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    /// `None` where there is no Python.
    fn set() -> Option<Desk> {
        stand::program("python3")?;
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Some(Desk { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The exit status, and all that was printed.
    fn larder(&self, words: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = larder(self.folder.path(), words);
        let left = fs::read_dir(self.path("tmp")).unwrap().count();
        assert_eq!(left, 0, "{words:?} leaves something behind");
        (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
    }
}

fn larder(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(words).current_dir(folder).env("HOME", folder).env("TMPDIR", folder.join("tmp"));
    for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "VIRTUAL_ENV"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

#[test]
fn a_script_is_written_with_tests_that_pass_and_lines_that_configure_it() {
    let Some(desk) = Desk::set() else { return };
    let (exit, text) = desk.larder(&["new", "script"]);
    assert!(exit == Some(0) && text.starts_with("wrote policy.py: "), "{exit:?} {text}");
    let (exit, tested) = desk.larder(&["test"]);
    assert!(exit == Some(0) && tested.contains("\n4 passed, 0 failed in "), "{exit:?} {tested}");
    let lines = text.split_once("origin:\n\n").unwrap().1.split_once("\n\nThen").unwrap().0;
    let loaded = Loaded::parse("test", lines, &[]).unwrap_or_else(|report| panic!("{report}\n{lines}"));
    assert_eq!(loaded.config.mounts.len(), 1);
    assert_eq!(loaded.config.pythons[0].folder, desk.folder.path().canonicalize().unwrap());
    desk.write("larder.toml", lines);
    let (exit, checked) = desk.larder(&["check"]);
    assert!(exit == Some(0), "{exit:?} {checked}");
}

#[test]
fn every_recipe_can_be_begun_with_under_any_name() {
    let Some(desk) = Desk::set() else { return };
    let (exit, list) = desk.larder(&["new", "script", "--list"]);
    assert!(exit == Some(0) && list.lines().count() >= 10, "{list}");
    for recipe in list.lines().filter_map(|line| line.split(' ').next()) {
        let name = format!("mine_{recipe}");
        let (exit, text) = desk.larder(&["new", "script", &name, "--recipe", recipe, "--folder", "site/hooks"]);
        assert_eq!(exit, Some(0), "{text}");
    }
    let (exit, text) = desk.larder(&["test", "site/hooks"]);
    assert!(exit == Some(0) && text.contains(" 0 failed in "), "{exit:?} {text}");
    let (exit, text) = desk.larder(&["new", "script", "--recipe", "no_such"]);
    assert!(exit == Some(2) && text.contains("there are strip_parameters, "), "{exit:?} {text}");
}

#[test]
fn no_file_is_overwritten_and_none_hides_a_module() {
    let Some(desk) = Desk::set() else { return };
    desk.write("test_policy.py", "mine\n");
    let (exit, text) = desk.larder(&["new", "script"]);
    assert!(exit == Some(2) && text.contains("there is a test_policy.py already"), "{exit:?} {text}");
    assert!(!desk.path("policy.py").exists(), "no half of a pair");
    assert_eq!(fs::read_to_string(desk.path("test_policy.py")).unwrap(), "mine\n");
    symlink(desk.path("elsewhere"), desk.path("links.py")).unwrap();
    assert_eq!(desk.larder(&["new", "script", "links"]).0, Some(2));
    assert!(!desk.path("elsewhere").exists(), "a link that leads nowhere is not followed");
    for name in ["json", "larder", "../x", "test_x", ""] {
        let (exit, text) = desk.larder(&["new", "script", name]);
        assert!(exit == Some(2), "{name}: {exit:?} {text}");
    }
    fs::write(desk.path("file"), "").unwrap();
    assert_eq!(desk.larder(&["new", "script", "--folder", "file/x"]).0, Some(1));
}

const HOOKS: &str = "
import larder
@larder.request(path='/a/**')
def strip(req):
    req.query.drop('utm_*')
@larder.request(path='/hang')
def hangs(req):
    while True:
        pass
";

#[test]
fn tests_fail_pass_and_end_in_time() {
    let Some(desk) = Desk::set() else { return };
    desk.write("policy.py", HOOKS);
    let (exit, text) = desk.larder(&["test", "policy.py"]);
    assert!(exit == Some(1) && text.contains("policy.py has no tests. It has 2 hooks:\n"), "{exit:?} {text}");
    assert!(text.contains("decision = call(\"policy.py\", \"GET http://shop.example/a/page?id=1\")"), "{text}");
    desk.write(
        "test_policy.py",
        "from larder.testing import call\n\
         def test_good(): assert call('policy.py', '/a/?utm_a=1&id=1').query == 'id=1'\n\
         def test_bad(): assert call('policy.py', '/a/?utm_a=1&id=1').query == 'id=2'\n\
         def test_hang(): call('policy.py', '/hang')\n\
         def test_loop():\n    while True: pass\n",
    );
    let (exit, text) = desk.larder(&["test", "--time", "300ms", "test_policy.py"]);
    assert!(exit == Some(1) && text.contains("1 passed, 3 failed in "), "{exit:?} {text}");
    assert!(text.contains("left   'id=1'\n      right  'id=2'"), "{text}");
    assert!(text.contains("policy.py:6: hangs took longer than hook_time (50 ms), and was here:\n"), "{text}");
    assert!(text.contains(", in hangs") && text.contains("it took longer than 0.3 s"), "{text}");
    assert_eq!(desk.larder(&["test", "-k", "good"]).0, Some(0));
    let output = larder(desk.folder.path(), &["test", "-k", "a", "--time", "300ms", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["passed"], &said["failed"]), (&0.into(), &2.into()), "{said}");
    assert_eq!(said["files"][0]["tests"][0]["name"], "test_bad");
}

#[test]
fn an_end_of_the_process_is_no_success() {
    let Some(desk) = Desk::set() else { return };
    desk.write("test_exit.py", "import os\ndef test_exit(): os._exit(0)\n");
    let (exit, text) = desk.larder(&["test"]);
    assert!(
        exit == Some(1) && text.contains("the interpreter ended before the tests did (exit status: 0)"),
        "{exit:?} {text}"
    );
    desk.write("test_exit.py", "import os, signal\ndef test_exit(): os.kill(os.getpid(), signal.SIGKILL)\n");
    let (exit, text) = desk.larder(&["test"]);
    assert!(exit == Some(1) && text.contains("signal: 9"), "{exit:?} {text}");
}

#[test]
fn what_is_missing_is_named() {
    let Some(desk) = Desk::set() else { return };
    for (words, wanted) in [
        (&["test"][..], "the folder . has no file test_*.py; `larder new script` writes one"),
        (&["test", "absent.py"], "there is no file absent.py"),
        (&["test", "--python", "/nowhere/python"], "the folder . has no file"),
        (&["test", "--time", "0s"], "a time from 10ms to 1d is needed"),
    ] {
        let (exit, text) = desk.larder(words);
        assert!(exit == Some(2) && text.contains(wanted), "{words:?}: {exit:?} {text}");
    }
    desk.write("test_a.py", "def test_a(): pass\n");
    let (exit, text) = desk.larder(&["test", "--python", "/nowhere/python"]);
    assert!(exit == Some(2) && text.contains("cannot start /nowhere/python"), "{exit:?} {text}");
    let (exit, text) = desk.larder(&["test", "--config", "absent.toml"]);
    assert!(exit == Some(2) && text.contains("absent.toml"), "{exit:?} {text}");
    desk.write("larder.toml", "nonsense = 1\n");
    let (exit, text) = desk.larder(&["test"]);
    assert!(exit == Some(0) && text.contains("warning: the configuration is wrong"), "{exit:?} {text}");
}

#[test]
fn the_interpreter_is_that_of_the_innermost_python_around_the_file() {
    let Some(desk) = Desk::set() else { return };
    for name in ["site", "site/hooks", "elsewhere"] {
        fs::create_dir(desk.path(name)).unwrap();
    }
    let mut settings = String::new();
    for (name, folder) in [("outer", "."), ("inner", "site"), ("other", "elsewhere")] {
        let interpreter = desk.path(&format!("python-{name}"));
        fs::write(&interpreter, format!("#!/bin/sh\nexport USED={name}\nexec python3 \"$@\"\n")).unwrap();
        fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755)).unwrap();
        settings += &format!(
            "[[python]]\nname = \"{name}\"\nfolder = \"{}\"\ninterpreter = \"{}\"\n",
            desk.path(folder).display(),
            interpreter.display()
        );
    }
    desk.write("larder.toml", &settings);
    for (file, wanted) in [("site/hooks/test_a.py", "inner"), ("elsewhere/test_a.py", "other"), ("test_a.py", "outer")]
    {
        desk.write(file, &format!("import os\ndef test_a(): assert os.environ['USED'] == '{wanted}'\n"));
        let (exit, text) = desk.larder(&["test", file]);
        assert!(exit == Some(0), "{file}: {exit:?} {text}");
    }
    let (exit, text) = desk.larder(&["test", "test_a.py", "--python", desk.path("python-inner").to_str().unwrap()]);
    assert!(exit == Some(1) && text.contains("left   'inner'"), "{exit:?} {text}");
}
