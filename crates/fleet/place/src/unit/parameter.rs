//! Custom properties: names, permitted values, defaults.

use crate::ratio::Ratio;
use regex::Regex;
use std::collections::BTreeMap;

/// A custom property that units read.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Regular expression that the whole value must match.
    pub regex: &'static str,
    /// Default value; empty if the unit then has no limit.
    pub default: &'static str,
    /// Its description.
    pub describes: &'static str,
}

const fn parameter(
    name: &'static str,
    regex: &'static str,
    default: &'static str,
    describes: &'static str,
) -> Parameter {
    Parameter { name, regex, default, describes }
}

/// Every parameter of the units here. The first fifteen are oVirt's, with its expressions and defaults.
pub const PARAMETERS: &[Parameter] = &[
    parameter("HighUtilization", "[5-9][0-9]", "", "CPU load in percent above which a host is overloaded"),
    parameter(
        "LowUtilization",
        "[0-9]|[1-4][0-9]",
        "20",
        "CPU load in percent below which a host is underused",
    ),
    parameter("CpuOverCommitDurationMinutes", "[1-9][0-9]*", "2", "minutes that an overload must last"),
    parameter("MaximumAllowedSwapUsage", "1?[0-9]?[0-9]", "0", "maximum swap in use, in percent of memory"),
    parameter(
        "VCpuToPhysicalCpuRatio",
        "[0-2](\\.[0-9]+)?",
        "0",
        "virtual CPUs per CPU at which a host is full; 0 for no limit",
    ),
    parameter(
        "SpmVmGrace",
        "[0-9]|[1-9][0-9]+",
        "5",
        "number of VMs that the storage pool manager counts as",
    ),
    parameter(
        "HighVmCount",
        "[0-9]|[1-9][0-9]+",
        "10",
        "minimum number of VMs of a host from which VMs are moved",
    ),
    parameter("MigrationThreshold", "[2-9]|[1-9][0-9]+", "5", "difference in VMs above which VMs are moved"),
    parameter(
        "MaxFreeMemoryForOverUtilized",
        "[1-9][0-9]*",
        "",
        "MB of free memory below which a host is overloaded",
    ),
    parameter(
        "MinFreeMemoryForUnderUtilized",
        "[1-9][0-9]*",
        "",
        "MB of free memory above which a host is underused",
    ),
    parameter("HeSparesCount", "[0-9][0-9]*", "0", "number of spare hosts for the self-hosted engine"),
    parameter("ScaleDown", "100|[1-9]|[1-9][0-9]", "1", "divides the count of highly available VMs"),
    parameter("HostsInReserve", "[0-9][0-9]*", "0", "number of empty hosts to keep switched on"),
    parameter(
        "EnableAutomaticHostPowerManagement",
        "true|false",
        "false",
        "whether the policy switches hosts on and off",
    ),
    parameter(
        "OverUtilization",
        "[1-9][0-9]{0,3}",
        "200",
        "maximum number of highly available VMs on a host, in percent of an even share",
    ),
    parameter("VCpuAllocationRatio", "[0-9]{1,3}(\\.[0-9]+)?", "1", "maximum number of virtual CPUs per CPU"),
    parameter(
        "PortUtilization",
        "100|[1-9]|[1-9][0-9]",
        "100",
        "part of a port's capacity that may be reserved, in percent",
    ),
    parameter(
        "FaultDomainLimit",
        "[1-9][0-9]*",
        "1",
        "maximum number of a chain's functions in a fault domain",
    ),
    parameter("FactFilter", "[^\\x00-\\x1f]{1,1000}", "", "expression that must hold for a host"),
    parameter(
        "MetricsWeightSetting",
        "[^\\x00-\\x1f]{1,1000}",
        "",
        "expression whose value is a host's score; higher is better",
    ),
];

/// A parameter by name.
pub fn describe(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name == name)
}

/// The number that a property's text is, or else the parameter's default. None if there is neither.
pub(crate) fn number(name: &str, given: Option<&str>) -> Option<Ratio> {
    given.and_then(Ratio::decimal).or_else(|| Ratio::decimal(describe(name)?.default))
}

/// The number of a property or its default, rounded down; `or` if there is neither.
pub(crate) fn whole_number(name: &str, given: Option<&str>, or: i64) -> i64 {
    let whole = |number: Ratio| i64::try_from(number.floor()).unwrap_or(i64::MAX);
    number(name, given).map_or(or, whole)
}

/// Parses a plugin's permitted properties, `key=regex;key=regex`, as oVirt does.
pub fn allowed(text: &str) -> Result<BTreeMap<String, Regex>, String> {
    let mut all = BTreeMap::new();
    // Attack: regular expressions that take forever to compile.
    if text.len() > 16_384 {
        return Err("more than 16384 characters".into());
    }
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, regex) = part.split_once('=').ok_or_else(|| format!("`{part}` is not `key=regex`"))?;
        let key = key.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(format!("`{key}` can't be a key; use letters, digits and `_`"));
        }
        all.insert(key.to_string(), whole(regex)?);
    }
    Ok(all)
}

/// An expression that matches whole values.
pub(crate) fn whole(regex: &str) -> Result<Regex, String> {
    let limited = regex::RegexBuilder::new(&format!("\\A(?:{regex})\\z")).size_limit(1 << 20).build();
    limited.map_err(|error| format!("`{regex}` is not a regular expression: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_matches_its_expression() {
        for parameter in PARAMETERS {
            let regex = whole(parameter.regex).unwrap();
            assert!(parameter.default.is_empty() || regex.is_match(parameter.default), "{}", parameter.name);
        }
        assert!(!whole(describe("LowUtilization").unwrap().regex).unwrap().is_match("50"));
    }

    #[test]
    fn plugin_parameters_are_parsed() {
        let all = allowed("maximum_vm_count=[0-9]*; hour=([01]?[0-9]|2[0-3])").unwrap();
        assert!(all["maximum_vm_count"].is_match("12") && !all["hour"].is_match("24"));
        assert!(allowed("novalue").is_err() && allowed("a b=1").is_err() && allowed("a=(").is_err());
        assert!(allowed("").unwrap().is_empty());
    }
}
