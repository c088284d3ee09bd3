/// Resource limits of a configuration. The defaults are far above the needs of known configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text, including libraries.
    pub text: usize,
    /// Nesting depth of compounds and groups in the text, as in Click.
    pub depth: usize,
    /// Nesting of compounds that use compounds.
    pub expansion_depth: usize,
    /// Number of elements; those inside compounds count once per use.
    pub elements: usize,
    /// Number of connections; those inside compounds count once per use.
    pub connections: usize,
    /// Limit of port numbers.
    pub ports: usize,
    /// Bytes of all configuration strings and names after variables are expanded.
    pub expansion: usize,
    /// Number of stored diagnostics.
    pub diagnostics: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            text: 16 << 20,
            depth: 50,
            expansion_depth: 200,
            elements: 1 << 18,
            connections: 1 << 20,
            ports: 1 << 16,
            expansion: 256 << 20,
            diagnostics: 10_000,
        }
    }
}
