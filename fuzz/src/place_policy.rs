//! Policies of placement.

use ringway_place::policy::{check, read};

/// Parses `data` as a file of policies: accepted ones are usable, others have an error.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read("fuzz.toml", text, &[]) {
        Ok(policies) => {
            for policy in policies {
                assert!(check(&policy, &[]).is_empty(), "a policy was accepted that can't be used");
                assert_eq!(policy.ordered().len(), policy.filters.len());
            }
        }
        Err(problems) => assert!(!problems.to_string().is_empty(), "a file was refused without a reason"),
    }
}

/// The documentation's policies, and one with every key.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = "[policy.night]\nbase = \"power_saving\"\nweights = { OptimalForCpuPowerSaving = 2, HA = 99 }\n\
        properties = { HighUtilization = 70, LowUtilization = \"30\" }\n\
        [policy.tight]\nfilters = [\"CPU\", \"Facts\", \"Memory\", \"VCpuCapacity\"]\nfirst = \"CPU\"\n\
        last = \"Memory\"\n\
        weights = { Packing = 10 }\nbalancer = \"None\"\nselector = \"scaled-sum\"\noptimise = \"speed\"\n\
        properties = { VCpuAllocationRatio = 4, FactFilter = \"a < 3 && b\" }\n";
    let wrong =
        "[policy.none]\nfilters = [\"CPU\", \"CPU\"]\nweights = { HA = -1, X = 1 }\nrequired = [\"Y\"]\n";
    vec![all.into(), wrong.into()]
}
