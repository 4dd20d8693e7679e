//! Presets: files of store rules, each about one protocol, which they know by its paths and answers.

/// The presets, by name, with the text of their files.
pub const PRESETS: &[(&str, &str)] = &[
    ("alpine", include_str!("../../presets/alpine.toml")),
    ("apt", include_str!("../../presets/apt.toml")),
    ("cargo", include_str!("../../presets/cargo.toml")),
    ("conda", include_str!("../../presets/conda.toml")),
    ("go", include_str!("../../presets/go.toml")),
    ("hub", include_str!("../../presets/hub.toml")),
    ("maven", include_str!("../../presets/maven.toml")),
    ("npm", include_str!("../../presets/npm.toml")),
    ("nuget", include_str!("../../presets/nuget.toml")),
    ("oci", include_str!("../../presets/oci.toml")),
    ("python", include_str!("../../presets/python.toml")),
    ("releases", include_str!("../../presets/releases.toml")),
    ("rpm", include_str!("../../presets/rpm.toml")),
    ("rubygems", include_str!("../../presets/rubygems.toml")),
    ("signed-storage", include_str!("../../presets/signed-storage.toml")),
];
