//! The tools that are played: each a short script that downloads into its working folder.

/// A tool and what it downloads.
pub struct Tool {
    /// The name in the report.
    pub name: &'static str,
    /// The program that must be installed.
    pub program: &'static str,
    /// Where it downloads from.
    pub from: From,
    /// For `sh`; `$HTTP` and `$HTTPS` are the local origin, `$CACHE` is an empty folder for the tool's own cache.
    /// Lines that differ from run to run by nature (times in an index) are removed at its end.
    pub script: &'static str,
}

/// Where a tool downloads from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The origin of the lab.
    Lab,
    /// The registry that the tool is configured for; not reached, it is skipped.
    Registry,
}

/// All tools, the local ones first.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "curl",
        program: "curl",
        from: From::Lab,
        script: "curl -fsS -O $HTTPS/tree/big.bin -O $HTTPS/tree/page-0.html -O $HTTP/tree/page-1.html",
    },
    Tool { name: "wget -r", program: "wget", from: From::Lab, script: "wget -q -r -np -nH $HTTP/tree/index.html" },
    Tool {
        name: "wget -r (https)",
        program: "wget",
        from: From::Lab,
        script: "wget -q -r -np -nH $HTTPS/tree/index.html",
    },
    Tool {
        name: "git clone",
        program: "git",
        from: From::Lab,
        script: "git clone -q $HTTPS/repository.git clone && git -C clone fsck --full --strict 2>&1 \
                 && git -C clone rev-parse HEAD > head && rm -rf clone/.git",
    },
    Tool {
        name: "pip download",
        program: "pip3",
        from: From::Registry,
        script: "pip3 download -q --no-deps --no-cache-dir --disable-pip-version-check six idna",
    },
    Tool {
        name: "npm pack",
        program: "npm",
        from: From::Registry,
        script: "npm pack --silent --cache $CACHE is-number is-odd",
    },
    Tool {
        name: "npm install",
        program: "npm",
        from: From::Registry,
        script: "npm install --silent --no-audit --no-fund --ignore-scripts --cache $CACHE --prefix . is-odd",
    },
    Tool {
        name: "cargo fetch",
        program: "cargo",
        from: From::Registry,
        script: "mkdir src && : > src/lib.rs \
                 && printf '[package]\\nname = \"fetched\"\\nversion = \"0.1.0\"\\n[dependencies]\\nitoa = \"1\"\\nryu = \"1\"\\n[workspace]\\n' > Cargo.toml \
                 && CARGO_HOME=$CACHE cargo fetch -q && cp $CACHE/registry/cache/*/*.crate .",
    },
    Tool { name: "apt-get download", program: "apt-get", from: From::Registry, script: APT },
];

/// Lists, packages and logs of its own, and of the machine only what is installed and where packages come from.
const APT: &str = "\
    sources=/etc/apt/sources.list.d/debian.sources; [ -f $sources ] || sources=/etc/apt/sources.list
    mkdir -p $CACHE/lists/partial $CACHE/archives/partial
    apt() { apt-get -qq -o Dir::State::lists=$CACHE/lists -o Dir::State::status=/var/lib/dpkg/status \
      -o Dir::Cache=$CACHE -o Dir::Etc::sourcelist=$sources -o Dir::Etc::sourceparts=- -o Dir::Log=$CACHE \
      -o Acquire::Languages=none -o APT::Sandbox::User=root -o Debug::NoLocking=1 \"$@\"; }
    apt update && apt download hostname";
