//! Media types of responses whose bodies may be compressed, as settings name them.

use larder_wire::fields::is_token;

/// Whether bodies of this type, in lower case, are compressed already: to compress them again takes time and saves nothing.
pub fn is_compressed(media_type: &str) -> bool {
    let starts = ["video/", "audio/", "font/woff", "application/font-woff"];
    let archives = ["zip", "gzip", "x-gzip", "zstd", "x-xz", "x-bzip2", "x-7z-compressed", "java-archive"];
    let plain_images = ["image/svg+xml", "image/bmp", "image/x-icon", "image/vnd.microsoft.icon"];
    starts.iter().any(|start| media_type.starts_with(start))
        || media_type.strip_prefix("application/").is_some_and(|name| archives.contains(&name))
        || (media_type.starts_with("image/") && !plain_images.contains(&media_type))
}

/// Whether the text is a media type, or `text/*`.
pub fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| is_token(part.as_bytes());
    let is_plain = |name: &str| !name.contains('*') || text == "text/*";
    text.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name) && is_plain(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_their_names() {
        for (text, is_type, compressed) in [
            ("text/html", true, false),
            ("text/*", true, false),
            ("application/json", true, false),
            ("image/svg+xml", true, false),
            ("image/x-icon", true, false),
            ("font/otf", true, false),
            ("image/png", true, true),
            ("video/mp4", true, true),
            ("application/zip", true, true),
            ("application/zstd", true, true),
            ("application/x-7z-compressed", true, true),
            ("application/java-archive", true, true),
            ("font/woff2", true, true),
            ("*/*", false, false),
            ("application/*", false, false),
            ("html", false, false),
            ("text/", false, false),
            ("text/a b", false, false),
        ] {
            assert_eq!((is_media_type(text), is_compressed(text)), (is_type, compressed), "{text}");
        }
    }
}
