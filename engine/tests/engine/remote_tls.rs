//! Servers that are spoken to by TLS: whom we trust, as whom we are known, and what is refused. What is the same without is in
//! `remote`.
use crate::support::*;
use std::sync::Arc;
use userswap::Engine;

/// A server whose certificate is another than redis-cli is told of here.
fn server_of(certificates: &Arc<Certificates>, name: &str) -> Redis {
    let [cert, key] = ["pem", "key"].map(|ending| certificates.text(&format!("{name}.{ending}")));
    Redis::start_by(&["--tls-cert-file", &cert, "--tls-key-file", &key], certificates)
}

fn use_of(engine: &Engine) {
    let (region, pages) = paged_out(engine, 500, 4);
    pages.check_all(4);
    drop(region);
    assert!(engine.counters().pswpin > 0);
}

#[test]
fn what_cannot_be_trusted_is_refused_with_the_way_out() {
    limit(100);
    let certificates = Arc::new(Certificates::new());
    let others = Certificates::new();
    certificates.sign("expired", "IP:127.0.0.1", -1);
    certificates.sign("elsewhere", "DNS:elsewhere.example", 2);
    let server = Redis::start_by(&[], &certificates);
    let expired = server_of(&certificates, "expired");
    let elsewhere = server_of(&certificates, "elsewhere");
    let old = Redis::start_by(&["--tls-protocols", "TLSv1.2"], &certificates);
    let plain = Redis::start(&[]);
    let ca = certificates.text("ca.pem");
    let at = |port: u16, rest: &str| format!("rediss://127.0.0.1:{port}/a{rest}");
    let by = |file: &str| format!(",cacert={file}");
    let [missing, key, cert] =
        ["missing.pem", "server.key", "server.pem"].map(|f| certificates.text(f));
    for (spec, named, remedy) in [
        (at(server.port, ""), "the system's certificates", "cacert=FILE"),
        (
            at(server.port, &by(&others.text("ca.pem"))),
            "no authority in cacert=/",
            "name its authority's",
        ),
        (expired.spec("a"), "expired", "renew"),
        (elsewhere.spec("a"), "elsewhere.example", "NAME=ADDRESS"),
        (old.spec("a"), "TLS 1.3", "tls-protocols"),
        (at(plain.port, &by(&ca)), "in TLS", "write redis://"),
        (format!("redis://127.0.0.1:{}/a", server.port), "reset", "write rediss://"),
        (at(server.port, &by(&missing)), "missing.pem", "name a file in PEM"),
        (at(server.port, &by(&key)), "server.key has no certificate", "name one that has"),
        (server.spec(&format!("a,cert={cert},key={ca}")), "ca.pem", "name a file in PEM"),
        (server.spec(&format!("a,cert={ca},key={key}")), "do not go together", "correct one"),
        ("rediss://127.0.0.1:1/a".to_owned(), "refused", "HOST:PORT"),
    ] {
        let said = refusal(&spec);
        assert!(said.contains(named) && said.contains(remedy), "{spec}: {said}");
    }
    assert_eq!(server.keys(), 0, "what is refused changes nothing");
    use_of(&engine_on(WAYS[0], &[&server.spec("a:64M")]));
}

#[test]
fn a_certificate_may_be_for_the_name_that_is_given_with_an_address() {
    limit(60);
    let certificates = Arc::new(Certificates::new());
    certificates.sign("elsewhere", "DNS:elsewhere.example", 2);
    let server = server_of(&certificates, "elsewhere");
    let spec = |name: &str| {
        let ca = certificates.text("ca.pem");
        format!("rediss://{name}=127.0.0.1:{}/a:64M,cacert={ca}", server.port)
    };
    use_of(&engine_on(WAYS[0], &[&spec("elsewhere.example")]));
    let said = refusal(&spec("nowhere.example"));
    assert!(said.contains("for elsewhere.example, not for nowhere.example"), "{said}");
}

#[test]
fn a_server_that_asks_for_certificates_gets_ours() {
    limit(60);
    let certificates = Arc::new(Certificates::new());
    let others = Certificates::new();
    let server = Redis::start_by(&["--tls-auth-clients", "yes"], &certificates);
    let known = |some: &Certificates| {
        let [cert, key] = ["server.pem", "server.key"].map(|file| some.text(file));
        server.spec(&format!("a:64M,cert={cert},key={key}"))
    };
    for way in one_way() {
        use_of(&engine_on(way, &[&known(&certificates)]));
    }
    let said = refusal(&server.spec("a"));
    assert!(said.contains("wants a certificate") && said.contains("cert=FILE"), "{said}");
    let said = refusal(&known(&others));
    assert!(said.contains("does not trust") && said.contains("cert=FILE"), "{said}");
}

#[test]
fn certificates_come_from_the_environment_where_they_are_not_named() {
    alone(60, || {
        let server = Redis::start_tls(&["--tls-auth-clients", "yes"]);
        let some = server.certificates.as_ref().unwrap();
        set_variable("USERSWAP_REDIS_CERT", &some.text("server.pem"));
        let spec = format!("rediss://127.0.0.1:{}/a:64M", server.port);
        assert!(refusal(&spec).contains("USERSWAP_REDIS_KEY go together"));
        set_variable("USERSWAP_REDIS_KEY", &some.text("server.key"));
        assert!(refusal(&spec).contains("the system's certificates"));
        set_variable("USERSWAP_REDIS_CACERT", "ca.pem");
        assert!(refusal(&spec).contains("USERSWAP_REDIS_CACERT=ca.pem depends"));
        set_variable("USERSWAP_REDIS_CACERT", &some.text("ca.pem"));
        use_of(&engine_on(WAYS[0], &[&spec]));
    });
}

#[test]
fn servers_of_a_cluster_are_spoken_to_by_tls_and_may_have_the_name_of_the_first() {
    limit(120);
    let certificates = Arc::new(Certificates::new());
    certificates.sign("server", "DNS:cluster.example", 2);
    let servers = cluster_by(3, |options| Redis::start_by(options, &certificates));
    let ca = certificates.text("ca.pem");
    let named = |name: &str| {
        format!("rediss://{name}=127.0.0.1:{}/a:64M,copies=2,cacert={ca}", servers[0].port)
    };
    for way in one_way() {
        let engine = engine_on(way, &[&named("cluster.example")]);
        let (_region, pages) = paged_out(&engine, 6000, 2);
        assert!(servers.iter().all(|server| server.slots() > 1000), "{way:?}");
        // One stops: it keeps nobody who asks the others.
        send(servers[1].pid(), libc::SIGSTOP);
        pages.check_all(2);
        send(servers[1].pid(), libc::SIGCONT);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    }
    assert!(refusal(&named("other.example")).contains("cluster.example"));
}
