//! Balancers, one a file.

/// Names of balancers that policies choose from.
pub const NAMES: [&str; 5] = [
    "None",
    "OptimalForEvenDistribution",
    "OptimalForEvenGuestDistribution",
    "OptimalForPowerSaving",
    "OptimalForHaReservation",
];
