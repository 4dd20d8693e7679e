//! Scripts to begin with, as `larder new script` writes them: hooks that many sites need, each with its tests.

/// A file of hooks, and the tests of it.
pub(super) struct Recipe {
    /// The name of its file in `python/recipes`, without `.py`.
    pub name: &'static str,
    /// Its purpose, in a line.
    pub about: &'static str,
    /// A thing that has to be done before it works; empty where there is none.
    pub before_use: &'static str,
    /// Files that it reads once, and that a reload takes up where `watch` names them; empty where there are none.
    pub watch: &'static str,
    /// The hooks.
    pub hooks: &'static str,
    /// The tests.
    pub tests: &'static str,
}

macro_rules! recipe {
    ($name:literal, $about:literal, $before_use:literal) => {
        recipe!($name, $about, $before_use, "")
    };
    ($name:literal, $about:literal, $before_use:literal, $watch:literal) => {
        Recipe {
            name: $name,
            about: $about,
            before_use: $before_use,
            watch: $watch,
            hooks: include_str!(concat!("../../../../python/recipes/", $name, ".py")),
            tests: include_str!(concat!("../../../../python/recipes/test_", $name, ".py")),
        }
    };
}

/// All of them. The first one is that of `larder new script` without `--recipe`.
pub(super) const RECIPES: &[Recipe] = &[
    recipe!("strip_parameters", "leave out the parameters that campaigns add to URLs", ""),
    recipe!("token_to_cookie", "move the token of a link into a cookie", "set TOKEN to the form of your tokens"),
    recipe!("ab_key", "two versions of a page, stored for each group of visitors", "have the origin read X-Group"),
    recipe!("geo_header", "tell the origin the country of a client", "fill in COUNTRIES"),
    recipe!(
        "signed_urls",
        "answer URLs only with a signature, and until their time is over",
        "(umask 077; python3 -c \"import secrets; print(secrets.token_hex(32))\" > signed_urls.key), beside it",
        "*.key"
    ),
    recipe!("maintenance", "a page for the time of maintenance, by a file", "set STAFF to your own addresses"),
    recipe!("purge_on_post", "what changes an article purges the pages that list articles", "set the paths to yours"),
    recipe!("negative_caching", "keep 404, 410 and answers of an overloaded origin for a moment", ""),
    recipe!("rate_limit", "requests a second of each client, counted in each process of hooks", ""),
    recipe!(
        "object_store",
        "files of a bucket under paths of the site",
        "set BUCKET to yours, and host = \"origin\" in the [[site]]",
        "*.secret"
    ),
];

/// Stands behind the import of the package, which only `larder test` has by itself.
const IMPORT_HINT: &str = "# for pytest, `larder scripts --library FOLDER` writes it";

impl Recipe {
    /// The recipe of this name.
    pub(super) fn named(name: &str) -> Option<&'static Recipe> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// The tests of the recipe as those of a file of another name.
    pub(super) fn tests_of(&self, file: &str) -> String {
        let intro = format!(
            "\"\"\"Tests of {file}, for `larder test test_{file}`, and for pytest with the package larder in PYTHONPATH.\"\"\"\n\n"
        );
        let tests = self.tests.replace(&format!("\"{}.py\"", self.name), &format!("\"{file}\""));
        // A failed import shows its line.
        let hinted = |line: &str| match line.trim_end() {
            import if import.starts_with("from larder.testing import ") => format!("{import}  {IMPORT_HINT}\n"),
            _ => line.to_owned(),
        };
        intro + &tests.split_inclusive('\n').map(hinted).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn all_recipes_of_the_folder_are_in_the_program_and_in_the_guide() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let files = fs::read_dir(root.join("python/recipes")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let there: BTreeSet<String> = names.filter(|name| name.ends_with(".py")).collect();
        let here: BTreeSet<String> =
            RECIPES.iter().flat_map(|recipe| ["", "test_"].map(|word| format!("{word}{}.py", recipe.name))).collect();
        assert_eq!(there, here);
        let guide = fs::read_to_string(root.join("docs/recipes.md")).unwrap();
        for recipe in RECIPES {
            assert!(guide.contains(&format!("\n## {}\n", recipe.name)), "{} has no chapter", recipe.name);
            assert!(guide.contains(&format!("(../python/recipes/{}.py)", recipe.name)), "{} has no link", recipe.name);
            let lines = recipe.hooks.lines().count();
            assert!(lines <= 60, "{} has {lines} lines: it is to be read at a glance", recipe.name);
        }
    }

    #[test]
    fn tests_name_the_file_that_was_written() {
        for recipe in RECIPES {
            let tests = recipe.tests_of("mine.py");
            assert!(tests.lines().any(|line| line.starts_with("from larder.testing") && line.ends_with(IMPORT_HINT)));
            assert!(tests.contains("\"mine.py\"") && !tests.contains(&format!("\"{}.py\"", recipe.name)), "{tests}");
        }
    }
}
