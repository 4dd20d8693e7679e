//! `larder new script`: files of hooks to begin with.

use super::recipes::{RECIPES, Recipe};
use super::{TROUBLE, WRONG};
use crate::diagnostics;
use crate::explain::Harmless;
use crate::script;
use clap::{Args, Subcommand};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub(super) enum NewCommand {
    /// Write a file of hooks in Python and its tests, from a recipe
    Script(ScriptFlags),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  larder new script                              policy.py and test_policy.py, which leave out utm_* and others
  larder new script --list                       the recipes
  larder new script links --recipe signed_urls   links.py and test_links.py
  larder test                                    runs the tests

docs/recipes.md describes each recipe and its limits. No file is overwritten.")]
pub(super) struct ScriptFlags {
    /// The name of the file, without `.py`
    #[arg(value_name = "NAME", default_value = "policy", value_parser = name_of)]
    name: String,
    /// The recipe that it begins with
    #[arg(long, value_name = "RECIPE", default_value = RECIPES[0].name, value_parser = recipe_of)]
    recipe: &'static Recipe,
    /// The folder for the files; it is made if it is not there
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    folder: PathBuf,
    /// List the recipes
    #[arg(long)]
    list: bool,
}

fn recipe_of(name: &str) -> Result<&'static Recipe, String> {
    Recipe::named(name).ok_or_else(|| {
        let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        format!("there is no such recipe; there are {}", names.join(", "))
    })
}

/// The folder of a script is the first place where its process looks for modules.
fn name_of(text: &str) -> Result<String, String> {
    let name = text.strip_suffix(".py").unwrap_or(text);
    let mut letters = name.chars();
    let is_word = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if !is_word || name.len() > 100 {
        return Err(
            "a name of letters, digits and _ is needed, which begins with no digit; --folder names a folder".to_owned()
        );
    }
    if name.starts_with("test_") {
        return Err("files that begin with test_ are those of tests, which are written beside it".to_owned());
    }
    if name == "larder" || script::imports(name) {
        return Err(format!("a file {name}.py would stand in the place of a module that Larder's runtime needs"));
    }
    Ok(name.to_owned())
}

impl ScriptFlags {
    /// The path of a file in the folder, as people write it.
    fn shown(&self, file: &str) -> String {
        let path = if self.folder.as_os_str() == "." { PathBuf::from(file) } else { self.folder.join(file) };
        Harmless(&path.display().to_string()).to_string()
    }
}

pub(super) fn new(command: &NewCommand) -> u8 {
    let NewCommand::Script(flags) = command;
    if flags.list {
        let width = RECIPES.iter().map(|recipe| recipe.name.len()).max().unwrap_or_default();
        let line = |recipe: &Recipe| format!("{:width$}  {}\n", recipe.name, recipe.about);
        return super::print(RECIPES.iter().map(line).collect::<String>());
    }
    let (file, tests) = (format!("{}.py", flags.name), format!("test_{}.py", flags.name));
    let texts = [(&file, flags.recipe.hooks.to_owned()), (&tests, flags.recipe.tests_of(&file))];
    // Both are looked for first, so that no half of a pair is written.
    if let Some((taken, _)) = texts.iter().find(|(name, _)| flags.folder.join(name).symlink_metadata().is_ok()) {
        diagnostics::say(format_args!(
            "error: there is a {} already, which stays as it is: give another name, as in `larder new script {}2`",
            flags.shown(taken),
            flags.name
        ));
        return WRONG;
    }
    for (name, text) in &texts {
        let path = flags.folder.join(name);
        if let Err(error) = write(&path, text) {
            diagnostics::say(format_args!("error: cannot write {}: {error}", path.display()));
            return TROUBLE;
        }
    }
    super::print(next_steps(flags, &file, &tests))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// The lines for the configuration, and the commands that come next.
fn next_steps(flags: &ScriptFlags, file: &str, tests: &str) -> String {
    let folder = flags.folder.canonicalize().unwrap_or_else(|_| flags.folder.clone());
    // A string of JSON is one of TOML.
    let folder = serde_json::to_string(&folder.display().to_string()).unwrap_or_default();
    let (file_path, tests_path) = (flags.shown(file), flags.shown(tests));
    let Recipe { name: recipe, about, before_use, watch, .. } = flags.recipe;
    let before_use = match before_use.is_empty() {
        true => String::new(),
        false => format!("before it works: {before_use}\n"),
    };
    let watch = match watch.is_empty() {
        true => String::new(),
        false => format!("\n  watch = [\"{watch}\"]          # and of this one, which its processes read once"),
    };
    let name = &flags.name;
    format!(
        "wrote {file_path}: {about} (recipe {recipe})\n\
         wrote {tests_path}: its tests; `larder test {tests_path}` runs them (pytest too: `larder scripts --library FOLDER` writes what it needs)\n{before_use}\n\
         For larder.toml, with your own hosts and origin:\n\n  \
           [[python]]\n  name = \"{name}\"\n  folder = {folder}\n  reload = \"on-change\"   # takes up changes of the file by itself{watch}\n\n  \
           [[site]]\n  hosts = [\"www.example.org\"]\n  origin = \"http://127.0.0.1:9000\"\n  python = \"{name}\"\n  hooks = [\"{file}\"]\n\n\
         Then `larder check`, and `larder` or `larder reload`. `larder scripts` shows the errors of hooks. With name_answers = true\n\
         in [records] each answer has a name (Larder-Request), and `larder explain NAME` says what hooks did with its request.\n\
         Hooks for all that goes through the forward proxy stand in [forward], with the same `python` and `hooks`, and need no [[site]].\n\
         A site that has hooks already gets the file into its list, in the order in which they are to run: hooks = [\"other.py\", \"{file}\"].\n\
         One [[python]] serves all files of its folder.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_that_harm_nothing() {
        assert_eq!(name_of("policy"), Ok("policy".to_owned()));
        assert_eq!(name_of("shop_2.py"), Ok("shop_2".to_owned()));
        for bad in
            ["", ".py", "../x", "a/b", "a-b", "2a", "a b", "é", "test_x", "larder", "json", "re", "types", "os", "a.b"]
        {
            assert!(name_of(bad).is_err(), "{bad}");
        }
    }
}
