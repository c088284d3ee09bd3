use super::*;
use crate::Device;
use ringway_wire::MacAddress;
use std::net::Ipv4Addr;

fn args(text: &str) -> Args {
    let mut args = Args::new(Rc::default(), "e", Rc::default());
    ringway_click_lang::config::arguments(text).for_each(|argument| args.add(argument));
    args
}

fn errors(args: &Args) -> String {
    args.report.borrow().diagnostics.iter().map(|d| d.text.trim().to_string()).collect::<Vec<_>>().join("; ")
}

#[test]
fn by_position_and_by_keyword() {
    let (mut first, mut second, mut third) = (0u32, 0i32, String::new());
    let mut given = args("5, LABEL \"a b\", SECOND -3");
    assert!(given.read_p("FIRST", &mut first));
    assert!(given.read("SECOND", &mut second));
    assert!(given.read_p("LABEL", &mut third));
    assert_eq!(given.complete(), Ok(()));
    assert_eq!((first, second, third.as_str()), (5, -3, "a b"));
}

#[test]
fn units_are_those_of_fabric_files() {
    let lines = include_str!("../../../../base/spec/src/file/units.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let [what, text, expected] = *line.split(' ').collect::<Vec<_>>() else { panic!("{line}") };
        let expected: f64 = expected.parse().unwrap();
        let scope = Scope::default();
        match what {
            "duration" => {
                assert_eq!(Nanoseconds::parse(text, &scope), Ok(Nanoseconds(expected as u64)), "{line}")
            }
            "bits" => {
                assert_eq!(Bandwidth::parse(text, &scope), Ok(Bandwidth((expected / 8.0) as u32)), "{line}")
            }
            _ => {
                assert_eq!(f64::parse(text, &scope), Ok(expected), "{line}");
                let fixed = Fixed::<16>((expected * 65536.0).round() as u32);
                assert_eq!(Fixed::<16>::parse(text, &scope), Ok(fixed), "{line}");
            }
        }
    }
    // Click's own spellings keep their meaning.
    let bandwidth = |text| Bandwidth::parse(text, &Scope::default()).map(|Bandwidth(bytes)| bytes);
    assert_eq!(["8kbps", "8Mbps", "9"].map(bandwidth), [Ok(1000), Ok(1_000_000), Ok(9)]);
    for wrong in ["bit", "xbit", "10 m bit", "8mbps", "100tbit", "%", "\u{e9}bit"] {
        assert!(bandwidth(wrong).is_err(), "{wrong}");
    }
    assert!(
        f64::parse("%", &Scope::default()).is_err() && Fixed::<16>::parse("%", &Scope::default()).is_err()
    );
}

#[test]
fn error_messages_equal_clicks() {
    let mut value = 0u8;
    let mut wrong = args("300");
    wrong.read_p("SIZE", &mut value);
    assert_eq!(wrong.complete(), Err(Failed));
    assert_eq!(errors(&wrong), "SIZE: out of range, bound 255");
    let mut wrong = args("x, y, FOO 3");
    wrong.read_mp("SIZE", &mut value);
    assert_eq!(wrong.complete(), Err(Failed));
    assert_eq!(errors(&wrong), "SIZE: invalid number; FOO: unknown argument; too many arguments");
    let mut missing = args("");
    missing.read_mp("SIZE", &mut value);
    assert_eq!(errors(&missing), "SIZE: required argument missing");
}

#[test]
fn types() {
    let scope = Scope::new(Rc::default(), "e");
    fn get<T: Arg>(text: &str, scope: &Scope) -> Option<T> {
        T::parse(text, scope).ok()
    }
    assert_eq!(get::<i32>("0x10", &scope), Some(16));
    assert_eq!(get::<i32>("010", &scope), Some(8));
    assert_eq!(get::<i32>("1_000", &scope), Some(1000));
    assert_eq!(get::<u32>("-1", &scope), None);
    assert_eq!(get::<i32>("1x", &scope), None);
    assert_eq!(get::<Ipv4Addr>("1.0.0.2", &scope), Some(Ipv4Addr::new(1, 0, 0, 2)));
    let prefix = get::<Prefix>("10.1.2.3/8", &scope).unwrap();
    assert!(prefix.contains(Ipv4Addr::new(10, 9, 9, 9)) && !prefix.contains(Ipv4Addr::new(11, 0, 0, 0)));
    assert_eq!(prefix.length(), Some(8));
    assert_eq!(get::<Prefix>("0.0.0.0/0", &scope).unwrap().length(), Some(0));
    assert_eq!(get::<Nanoseconds>("1.5ms", &scope), Some(Nanoseconds(1_500_000)));
    assert_eq!(get::<Nanoseconds>("2", &scope), Some(Nanoseconds(2_000_000_000)));
    assert_eq!(get::<Nanoseconds>("1 min", &scope), Some(Nanoseconds(60_000_000_000)));
    assert_eq!(get::<Seconds>("1h", &scope), Some(Seconds(3600)));
    assert_eq!(get::<Bandwidth>("1Mbps", &scope), Some(Bandwidth(125_000)));
    assert_eq!(get::<Bandwidth>("384kB/s", &scope), Some(Bandwidth(384_000)));
    assert_eq!(get::<Bandwidth>("100", &scope), Some(Bandwidth(100)));
    assert_eq!(get::<Fixed<16>>("0.5", &scope), Some(Fixed(32768)));
    let texts = ["0", "0.3", "0.0625", "1", "7.99"].map(|text| get::<Fixed<28>>(text, &scope));
    assert_eq!(texts.map(|number| number.unwrap().to_string()), ["0", "0.3", "0.0625", "1", "7.99"]);
    assert_eq!(get::<Annotation>("PAINT", &scope), Some(Annotation { offset: 16, size: 1 }));
    assert_eq!(get::<Annotation>("20/2", &scope), Some(Annotation { offset: 20, size: 2 }));
    assert_eq!(get::<Vec<u8>>("\\<0001ff>", &scope), Some(vec![0, 1, 255]));
    assert_eq!(get::<bool>("yes", &scope), Some(true));
}

#[test]
fn names_are_resolved_outwards() {
    let names = Names::default();
    names.define(NameKind::Ipv4, "gw", "a/info", &[10, 0, 0, 1]);
    assert_eq!(names.value(NameKind::Ipv4, "gw", "a/b/c"), Some(vec![10, 0, 0, 1]));
    assert_eq!(names.value(NameKind::Ipv4, "gw", "x/y"), None);
}

proptest::proptest! {
    #[test]
    fn nothing_panics(text in "\\PC{0,40}") {
        let scope = Scope::new(Rc::default(), "e");
        let _ = i32::parse(&text, &scope);
        let _ = Nanoseconds::parse(&text, &scope);
        let _ = Bandwidth::parse(&text, &scope);
        let _ = Fixed::<28>::parse(&text, &scope);
        let _ = Prefix::parse(&text, &scope);
        let _ = Prefix6::parse(&text, &scope);
        let _ = ringway_wire::MacAddress::parse(&text, &scope);
        let _ = Annotation::parse(&text, &scope);
        let _ = String::parse(&text, &scope);
        let mut args = args(&text);
        let mut value = String::new();
        args.read_p("A", &mut value);
        let _ = args.complete();
    }

    #[test]
    fn numbers_do_not_panic(text in "[-+0-9.eE_xb]{0,30}(ms|kbps|/32)?") {
        let scope = Scope::new(Rc::default(), "e");
        let _ = i64::parse(&text, &scope);
        let _ = u64::parse(&text, &scope);
        let _ = Nanoseconds::parse(&text, &scope);
        let _ = Bandwidth::parse(&text, &scope);
        let _ = Fixed::<28>::parse(&text, &scope);
    }
}

#[test]
fn names_of_devices_stand_for_their_addresses() {
    let devices: fn() -> Vec<Device> = || {
        let (ethernet, gateway) = (Some([2, 0, 0, 0, 0, 1]), Some([10, 0, 0, 9]));
        let address = Some([[10, 0, 0, 5], [255, 255, 255, 0]]);
        vec![
            Device { name: "eth0".into(), ethernet, address, gateway },
            Device {
                name: "lo".into(),
                address: Some([[127, 0, 0, 1], [255, 0, 0, 0]]),
                ..Device::default()
            },
        ]
    };
    let names = Names::new(&ringway_click_lang::Graph::default(), devices);
    names.define(NameKind::Ipv4, "lo", "e", &[1, 2, 3, 4]);
    let scope = Scope::new(Rc::new(names), "e");
    let v4 = |text: &str| Ipv4Addr::parse(text, &scope).ok().map(|address| address.to_string());
    assert_eq!(v4("eth0").as_deref(), Some("10.0.0.5"));
    assert_eq!(v4("eth0:ip").as_deref(), Some("10.0.0.5"));
    assert_eq!(v4("eth0:gw").as_deref(), Some("10.0.0.9"));
    assert_eq!(v4("eth0:bcast").as_deref(), Some("10.0.0.255"));
    assert_eq!(v4("lo:gw").as_deref(), Some("127.0.0.1"));
    assert_eq!(v4("lo").as_deref(), Some("1.2.3.4"), "AddressInfo comes first");
    assert_eq!((v4("eth1"), v4("eth1:gw"), v4("eth0:eth")), (None, None, None));
    let mac = |text: &str| MacAddress::parse(text, &scope).ok();
    let expected = Some(MacAddress([2, 0, 0, 0, 0, 1]));
    assert_eq!((mac("eth0"), mac("eth0:eth"), mac("lo")), (expected, expected, None));
    assert_eq!(Prefix::parse("eth0/24", &scope).unwrap().address, Ipv4Addr::new(10, 0, 0, 5));
    let network = Prefix { address: Ipv4Addr::new(10, 0, 0, 0), mask: Ipv4Addr::new(255, 255, 255, 0) };
    assert_eq!(Prefix::parse("eth0:ipnet", &scope), Ok(network));
    assert!(Prefix::parse("eth0", &scope).is_err(), "the name alone is an address");
}
