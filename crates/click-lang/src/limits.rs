/// Resource limits of a configuration. The defaults are far beyond any known configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text, libraries included.
    pub text: usize,
    /// Nesting depth of compounds and groups in the text, as in Click.
    pub depth: usize,
    /// Nesting of compounds that use compounds.
    pub expansion_depth: usize,
    /// Number of elements; those inside compounds count once per use.
    pub elements: usize,
    /// Connections, counted likewise.
    pub connections: usize,
    /// Port numbers are below this.
    pub ports: usize,
    /// Bytes of all configuration strings and names after variables are expanded.
    pub expansion: usize,
    /// Diagnostics kept.
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
