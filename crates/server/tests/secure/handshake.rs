//! TLS: who is let in, who is not, and why it says so in the log.

use crate::secure::certificates::{Authority, EXPIRED, NOW, connect, refusal};
use crate::secure::{Temp, log};
use forebay_server::{Limits, ServerConfig, TlsFiles};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

fn config(tls: TlsFiles) -> ServerConfig {
    ServerConfig { native: vec!["tls://127.0.0.1:0".parse().unwrap()], tls: Some(tls), ..ServerConfig::default() }
}

#[test]
fn a_client_that_believes_the_servers_authority_is_served() {
    let (temp, ca) = (Temp::new(), Authority::new("ca"));
    let (_server, address) = temp.server(config(temp.tls(&ca.server(NOW), None, false)));
    assert_eq!(refusal(connect(address, &ca, None).unwrap()), None);
}

#[test]
fn a_client_that_believes_another_authority_goes_and_the_server_says_so() {
    let (temp, ca, log) = (Temp::new(), Authority::new("ca"), log::collect());
    let http = Some("127.0.0.1:0".parse().unwrap());
    let (server, address) = temp.server(ServerConfig { http, ..config(temp.tls(&ca.server(NOW), None, false)) });
    let error = connect(address, &Authority::new("another"), None).err().unwrap();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    crate::secure::eventually("it is counted", || crate::secure::refused(&server, "native", "certificate") == 1);
    crate::secure::eventually("the server receives it", || {
        log.text()
            .lines()
            .any(|line| line.contains("refused") && line.contains("certificate") && line.contains("UnknownCA"))
    });
}

#[test]
fn an_expired_server_is_refused_by_its_clients_and_hears_of_it() {
    let (temp, ca, log) = (Temp::new(), Authority::new("ca"), log::collect());
    let http = Some("127.0.0.1:0".parse().unwrap());
    let (server, address) = temp.server(ServerConfig { http, ..config(temp.tls(&ca.server(EXPIRED), None, false)) });
    let error = connect(address, &ca, None).err().unwrap();
    assert!(error.to_string().contains("certificate expired"), "{error}");
    crate::secure::eventually("it is counted", || crate::secure::refused(&server, "native", "certificate") == 1);
    crate::secure::eventually("it is logged", || log.text().contains("CertificateExpired"));
}

#[test]
fn client_certificates_count_where_they_are_required() {
    let (temp, ca, log) = (Temp::new(), Authority::new("ca"), log::collect());
    let tls = temp.tls(&ca.server(NOW), Some(&ca), true);
    let http = Some("127.0.0.1:0".parse().unwrap());
    let (server, address) = temp.server(ServerConfig { http, ..config(tls) });
    assert_eq!(refusal(connect(address, &ca, Some(&ca.client(NOW))).unwrap()), None);
    let strangers = Authority::new("strangers");
    let cases = [
        (None, "CertificateRequired"),
        (Some(ca.client(EXPIRED)), "CertificateExpired"),
        (Some(strangers.client(NOW)), "UnknownCA"),
        // A server's certificate is none for clients.
        (Some(ca.server(NOW)), "alert"),
    ];
    for (shown, alert) in cases {
        let stream = connect(address, &ca, shown.as_ref()).unwrap();
        let client = stream.sock.local_addr().unwrap();
        let said = refusal(stream).unwrap();
        assert!(said.contains(alert), "{alert}: {said}");
        let line = log.refusal_of(client, "certificate");
        assert!(line.contains("listener=\"native\""), "{line}");
    }
    assert_eq!(crate::secure::refused(&server, "native", "certificate"), 4);
}

#[test]
fn an_optional_client_certificate_may_be_missing_but_not_wrong() {
    let (temp, ca) = (Temp::new(), Authority::new("ca"));
    let (_server, address) = temp.server(config(temp.tls(&ca.server(NOW), Some(&ca), false)));
    assert_eq!(refusal(connect(address, &ca, None).unwrap()), None);
    assert_eq!(refusal(connect(address, &ca, Some(&ca.client(NOW))).unwrap()), None);
    let wrong = refusal(connect(address, &ca, Some(&ca.client(EXPIRED))).unwrap());
    assert!(wrong.unwrap().contains("CertificateExpired"));
}

#[test]
fn a_silent_client_is_shown_out_at_the_deadline() {
    let (temp, ca, log) = (Temp::new(), Authority::new("ca"), log::collect());
    let limits = Limits { handshake_deadline: Duration::from_millis(200), ..Limits::default() };
    let tls = temp.tls(&ca.server(NOW), None, false);
    let (server, address) = temp.server(ServerConfig { limits, ..config(tls) });
    let mut silent = TcpStream::connect(address).unwrap();
    let from = Instant::now();
    silent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    let took = from.elapsed();
    assert!((Duration::from_millis(190)..Duration::from_secs(30)).contains(&took), "{took:?}");
    let line = log.refusal_of(silent.local_addr().unwrap(), "handshake");
    assert!(line.contains("no TLS handshake within 200ms"), "{line}");
    crate::secure::eventually("nobody is left", || server.connections() == 0);
}

#[test]
fn what_is_no_tls_is_refused_at_once() {
    let (temp, ca, log) = (Temp::new(), Authority::new("ca"), log::collect());
    let (_server, address) = temp.server(config(temp.tls(&ca.server(NOW), None, false)));
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut answer = Vec::new();
    plain.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.len() < 16, "an alert at most: {answer:?}");
    log.refusal_of(plain.local_addr().unwrap(), "handshake");
}

#[test]
fn files_that_cannot_be_used_end_the_start_by_name() {
    let (temp, ca) = (Temp::new(), Authority::new("ca"));
    let good = temp.tls(&ca.server(NOW), None, false);
    let refused = |change: &dyn Fn(&mut TlsFiles)| {
        let mut tls = good.clone();
        change(&mut tls);
        forebay_server::Server::start(Vec::<forebay_server::Served>::new(), config(tls)).err().unwrap().to_string()
    };
    let other = temp.write("other.key", &ca.server(NOW).key, 0o600);
    assert!(refused(&|tls| tls.key = other.clone()).contains("other.key"));
    assert!(refused(&|tls| tls.key = temp.path.join("nowhere")).contains("nowhere"));
    assert!(refused(&|tls| tls.certificate = other.clone()).contains("no certificate in PEM form"));
    assert!(refused(&|tls| tls.client_ca = Some(temp.path.join("nowhere"))).contains("nowhere"));
    std::fs::set_permissions(&good.key, std::fs::Permissions::from_mode(0o604)).unwrap();
    assert!(refused(&|_| ()).contains("chmod o="));
}
