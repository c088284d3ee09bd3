//! The DNS responder answers dig.
use super::{alone, read, says};
use crate::lab::every_isolation;
use crate::lab::net::{can_create_taps, namespace};

#[test]
fn dig_gets_answers() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let (_keeper, client) = namespace();
        let lab = alone("dns", isolation, &client, "10.0.0.1/24");
        let dig = |words: &str| says(&client, &format!("dig +tries=3 +timeout=10 @10.0.0.53 {words}"));
        assert_eq!(dig("+short www.example.com"), "192.0.2.80\n", "{isolation}");
        // A query without EDNS, in upper case.
        assert_eq!(dig("+short +noedns EXAMPLE.com"), "192.0.2.80\n", "{isolation}");
        let answer = dig("example.com");
        let flags = answer.contains("status: NOERROR") && answer.contains("flags: qr aa");
        let record = answer.lines().find(|line| line.starts_with("example.com.")).unwrap_or_default();
        let fields: Vec<&str> = record.split_whitespace().collect();
        assert!(flags && fields == ["example.com.", "300", "IN", "A", "192.0.2.80"], "{isolation}: {answer}");
        let other = dig("AAAA www.example.com");
        assert!(other.contains("status: NOERROR") && other.contains("ANSWER: 0"), "{isolation}: {other}");
        let unknown = dig("mail.example.com");
        assert!(unknown.contains("status: NXDOMAIN"), "{isolation}: {unknown}");
        assert_eq!(read(&lab, "dns", "found.count"), "3", "{isolation}");
        assert_eq!(read(&lab, "dns", "others.count"), "1", "{isolation}");
        assert_eq!(read(&lab, "dns", "unknown.count"), "1", "{isolation}");
    }
}
