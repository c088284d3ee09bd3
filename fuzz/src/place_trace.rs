//! Published traces of VMs, and lists of hosts.

use ringway_place::simulate::{TraceKind, read, read_nodes};

/// Parses `data` as a trace or a list of hosts; the first byte selects the format.
pub fn run(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let kind = match kind % 4 {
        0 => TraceKind::Openb,
        1 => TraceKind::Vmagent,
        2 => TraceKind::Azure,
        _ => {
            if let Ok(hosts) = read_nodes("fuzz.csv", text) {
                hosts.iter().for_each(|host| host.check().expect("a host that can be"));
            }
            return;
        }
    };
    match read(kind, "fuzz.csv", text) {
        Ok(arrivals) => {
            assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
            arrivals.iter().for_each(|arrival| arrival.vm.check().expect("a VM that can be"));
        }
        Err(error) => assert!(error.line > 0 && !error.what.is_empty()),
    }
}

/// A few lines in each format.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "0name,cpu_milli,memory_mib,creation_time,deletion_time\na,4000,8192,10,20\nb,500,1,5,\n",
        "1vmid,cpu,memory,time,type\n1,2,4,0,0\n2,1,1,3,0\n1,2,4,9,1\n",
        "2vmId,core,memory,starttime,endtime\n7,0.25,0.1,-1.5,2\n8,1,1,0.5,\n",
        "3sn,cpu_milli,memory_mib\nn0,64000,262144\n\"n1\",1000,1\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
