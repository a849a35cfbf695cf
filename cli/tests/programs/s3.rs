//! Objects of a store as a device of programs under `run`: how they fork and end, and what is refused before they begin.

use crate::preload_support::served::{is_refusal, runtime, userswap_in};

/// Without the feature nothing else is to be seen.
#[cfg(not(feature = "s3"))]
#[test]
fn a_build_without_buckets_says_how_to_have_them() {
    let runtime = runtime();
    let spec = "s3://bucket/a,endpoint=http://127.0.0.1:1,tier=1";
    let run = ["run", "--swap", "zram:64M,tier=0", "--swap", spec, "--", "echo", "run"];
    let output = userswap_in(&runtime, &run).output().unwrap();
    is_refusal(&output, 2, &["s3://bucket/a", "--features s3"]);
    assert!(output.stdout.is_empty());
}

#[cfg(feature = "s3")]
mod with_it {
    use super::*;
    use crate::certificates::Certificates;
    use crate::preload_support::is_long;
    use crate::preload_support::served::{Served, eventually, filler, printed};
    use crate::server::{S3, spec};
    use std::sync::Arc;

    fn start(runtime: &tempfile::TempDir, fault: &str, server: &S3) -> Served {
        let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let spec = server.spec(&format!("{fault}:256M"));
        let swap = ["--swap", "mem:8M,tier=0", "--swap", &spec];
        let options = [&["--ram", "16M", "--fault", fault], &swap[..]].concat();
        // Three MiB are left for the objects: this store takes milliseconds for each request.
        Served::start_with(runtime, &keys, &options, &filler(27))
    }

    #[test]
    fn a_program_has_its_coldest_pages_in_objects_forks_and_ends() {
        std::thread::scope(|scope| {
            let certificates = Arc::new(Certificates::new());
            for (fault, is_sealed) in
                [("thread", false), ("signal", true), ("thread", true), ("signal", false)]
                    .into_iter()
                    .take(if is_long() { 4 } else { 2 })
            {
                let certificates = certificates.clone();
                scope.spawn(move || match is_sealed {
                    true => {
                        has_its_coldest_pages_in_objects(&S3::start_tls(&certificates), fault);
                    }
                    false => has_its_coldest_pages_in_objects(&S3::start(), fault),
                });
            }
        });
    }

    fn has_its_coldest_pages_in_objects(server: &S3, fault: &str) {
        let runtime = runtime();
        let mut served = start(&runtime, fault, server);
        assert_eq!(served.hear(), "filled");
        eventually("there are objects", || server.segments() >= 4);
        // What its children have of their own is deleted when they are gone, by others.
        let own = server.names().into_iter().find(|name| name.starts_with(fault)).unwrap();
        let own = own[..own.rfind('/').unwrap()].to_owned();
        assert!(printed(&runtime, &["status", &served.pid()]).contains("s3://bucket/"));
        for word in ["look", "fork", "child"] {
            assert_eq!(served.ask(word), "right", "{fault}: {word}");
        }
        printed(
            &runtime,
            &[
                "swapon",
                &served.pid(),
                &server.spec("other:256M").replace("127.0.0.1", "localhost"),
            ],
        );
        printed(&runtime, &["swapoff", &served.pid(), &format!("s3://bucket/{fault}")]);
        assert_eq!(served.ask("look"), "right");
        let left: Vec<_> =
            server.names().into_iter().filter(|name| name.starts_with(&own)).collect();
        assert!(left.is_empty(), "it is let go of: {left:?} of {:?}", server.names());
        assert_eq!(served.ask("end"), "");
        assert!(served.child.wait().unwrap().success());
    }

    #[test]
    fn what_cannot_be_used_is_refused_before_the_program_starts() {
        let runtime = runtime();
        let none = spec(1, "a");
        let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let untiered = none.replace(",tier=1", "");
        // As they were written, without what was found out about them.
        let (quoted, quoted_untiered) = (format!("\"{none}\""), format!("\"{untiered}\""));
        for (given, keys, parts) in [
            (none.clone(), &keys[..], ["127.0.0.1:1", "start the server"]),
            (none.clone(), &[], [&quoted, "no key to this bucket"]),
            (none.clone(), &keys[..1], [&quoted, "AWS_SECRET_ACCESS_KEY is not: set both"]),
            (untiered.clone(), &keys, [&quoted_untiered, "tier"]),
            (
                untiered.replace("127.0.0.1", "localhost"),
                &keys,
                ["localhost:1\" ", "needs a tier in front"],
            ),
            (none.replace("http:", "ftp:"), &keys, ["ftp://127.0.0.1:1", "https://HOST"]),
        ] {
            let run = ["run", "--swap", "mem:64M,tier=0", "--swap", &given, "--", "echo", "run"];
            let mut command = userswap_in(&runtime, &run);
            command.env("HOME", "/nonexistent").envs(keys.iter().copied());
            let output = command.output().unwrap();
            is_refusal(&output, 2, &parts);
            assert!(output.stdout.is_empty(), "{given}: nothing is run");
        }
    }
}
