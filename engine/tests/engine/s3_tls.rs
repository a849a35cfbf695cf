//! Stores of objects that are spoken to by TLS: whom we trust, and what is refused. What is the same without is in `s3`.
use crate::support::*;
use std::sync::Arc;
use userswap::Engine;

/// Little in front: almost all moves on.
const FRONT: &str = "mem:4M,tier=0";

/// Keys that nobody checks.
fn give_keys() {
    set_variable("AWS_ACCESS_KEY_ID", "test");
    set_variable("AWS_SECRET_ACCESS_KEY", "secret");
    // The machine's own is nothing to these tests.
    set_variable("AWS_CA_BUNDLE", "");
}

/// What refuses a device.
fn refusal(spec: &str) -> String {
    let built = with_swap(builder(WAYS[0]), &[FRONT, spec]).build();
    let refusal = built.err().unwrap_or_else(|| panic!("{spec} is refused")).to_string();
    assert_eq!(refusal.lines().count(), 1);
    refusal
}

fn use_of(engine: &Engine, server: &S3) {
    let (region, pages) = paged_out(engine, 4000, 4);
    eventually("there are objects", || server.segments() > 0);
    pages.check_all(4);
    drop(region);
}

#[test]
fn pages_go_and_come_by_tls_and_nothing_stays() {
    alone(300, || {
        give_keys();
        let server = S3::start_tls(&Arc::new(Certificates::new()));
        // The server's TLS is slow; what does not depend on that is tested in `s3`.
        for way in one_way() {
            let engine = engine_on(way, &[FRONT, &server.spec("a:128M")]);
            let (mut region, pages) = paged_out(&engine, 5400, 7);
            eventually("full segments are objects", || server.segments() >= 4);
            write_thirds(pages, 7);
            check_thirds(pages, 0..pages.count, 7);
            join(fork(&engine, || {
                check_thirds(pages, 0..pages.count, 7);
                pages.fill_all(9);
                pages.check_all(9);
            }));
            audit(&engine);
            region.discard(0..region.len() / 2).unwrap();
            swapoff(&engine, "s3://bucket/a").unwrap();
            check_thirds(pages, pages.count / 2..pages.count, 7);
            assert_eq!(engine.counters().pages_lost, 0, "{way:?}");
        }
        eventually("nothing is left", || server.names().is_empty());
    });
}

#[test]
fn what_cannot_be_trusted_is_refused_with_the_way_out() {
    alone(100, || {
        give_keys();
        let (certificates, others) = (Arc::new(Certificates::new()), Certificates::new());
        let elsewhere = Arc::new(Certificates::new());
        elsewhere.sign("server", "DNS:elsewhere", 2);
        let server = S3::start_tls(&certificates);
        let renamed = S3::start_tls(&elsewhere);
        let plain = S3::start();
        let by = |spec: &str, file: &str| format!("{},cacert={file}", before_files(spec));
        let good = server.spec("a:64M");
        let by_tls = by(&plain.spec("a").replace("http:", "https:"), &certificates.text("ca.pem"));
        for (spec, named, remedy) in [
            (before_files(&good), "the system's certificates", "cacert=FILE"),
            (by(&good, &others.text("ca.pem")), "no authority in cacert=/", "name its authority's"),
            (by(&good, &certificates.text("no.pem")), "no.pem", "name a file in PEM"),
            (by(&good, &certificates.text("server.key")), "has no certificate", "name one"),
            (renamed.spec("a"), "for elsewhere, not for 127.0.0.1", "at=ADDRESS"),
            (before_files(&good).replace("https:", "http:"), "127.0.0.1", "https://"),
            (by_tls, "in TLS", "write http://"),
        ] {
            let said = refusal(&spec);
            assert!(said.contains(named) && said.contains(remedy), "{spec}: {said}");
        }
        assert!(server.names().is_empty(), "what is refused changes nothing");
        use_of(&engine_on(WAYS[0], &[FRONT, &good]), &server);
        let named = renamed.spec("a:64M").replace("127.0.0.1", "elsewhere");
        let named = format!("{named},at=127.0.0.1");
        use_of(&engine_on(WAYS[1], &[FRONT, &named]), &renamed);
    });
}

/// Without what is said of certificates.
fn before_files(spec: &str) -> String {
    spec.split(",cacert").next().unwrap().to_owned()
}

#[test]
fn the_authority_comes_from_the_environment_where_it_is_not_named() {
    alone(60, || {
        give_keys();
        let certificates = Arc::new(Certificates::new());
        let server = S3::start_tls(&certificates);
        let spec = before_files(&server.spec("a:64M"));
        set_variable("AWS_CA_BUNDLE", "ca.pem");
        assert!(refusal(&spec).contains("AWS_CA_BUNDLE=ca.pem depends on a working directory"));
        set_variable("AWS_CA_BUNDLE", &certificates.text("ca.pem"));
        use_of(&engine_on(WAYS[0], &[FRONT, &spec]), &server);
    });
}
