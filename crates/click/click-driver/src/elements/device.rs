//! Helpers shared by elements of network interfaces.
use ringway_click::{Context, Failed};

/// Refuses an unknown METHOD, and a BURST of 0.
pub(super) fn check_device(method: &str, burst: u32, cx: &mut Context<'_>) -> Result<(), Failed> {
    if !matches!(method, "" | "LINUX" | "PCAP" | "DEFAULT") {
        return Err(cx.error(format!("bad METHOD '{method}'; there is LINUX")));
    }
    if burst == 0 {
        return Err(cx.error("BURST must be >= 1"));
    }
    Ok(())
}
