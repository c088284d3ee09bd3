//! Properties of element classes, for the tools.
use ringway_click::Registry;
use ringway_click_lang::Element;
use ringway_click_lang::check::{ClassProperties, Classes};

/// This program's classes.
pub struct Known(Registry);

impl Default for Known {
    fn default() -> Self {
        Self(ringway_click_driver::click::registry())
    }
}

impl Classes for Known {
    fn properties(&self, element: &Element) -> Option<ClassProperties<'_>> {
        let class = self.0.find(&element.class)?;
        let (ports, processing, flow, flags) = (class.ports, class.processing, class.flow, class.flags);
        Some(ClassProperties { ports, processing, flow, flags })
    }
}
